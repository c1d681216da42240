"""Every measured figure of README.md and docs/*.md, and the table of `engram recommend`, from the files under results/.

A document marks where one stands:

    <!-- table NAME -->
    (generated)
    <!-- end -->

    the end accuracy is <!-- value NAME -->12.9<!-- end -->

`python docs/generate.py` (`make docs-results`) fills them in; with `--check` it changes nothing and fails where a
document says something else than the results do.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from choices import TARGET, choices_text
from measured import ROOT, TABLES, VALUES

MARK = re.compile(r"<!-- (table|value) (.+?) -->(.*?)<!-- end -->", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where documents differ")
    options = parser.parse_args()
    stale = 0
    for path in (*documents(), TARGET):
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = choices_text() if path == TARGET else filled(before)
        if before == after:
            continue
        stale += 1
        if options.check:
            print(f"{path.relative_to(ROOT)} does not say what results/ says: run make docs-results", file=sys.stderr)
        else:
            path.write_text(after, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} written")
    return 1 if stale and options.check else 0


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str) -> str:
    """The document with every mark filled in anew."""

    def fill(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        known: dict[str, Callable[[], str]] = TABLES if kind == "table" else VALUES
        if name not in known:
            raise SystemExit(f"no {kind} is called {name!r}: {', '.join(known)}")
        inside = f"\n{known[name]()}\n" if kind == "table" else known[name]()
        return f"<!-- {kind} {name} -->{inside}<!-- end -->"

    return MARK.sub(fill, text)


if __name__ == "__main__":
    sys.exit(main())
