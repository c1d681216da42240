"""Write requirements.txt: what engram needs to be built and to run, with the checksums that the index serves.

The versions are those of constraints.txt. Run it in an environment where engram is installed: `make hashes`.
"""

from __future__ import annotations

import hashlib
import re
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
INDEX = "https://pypi.org/simple"
BUILD = ("hatchling", "editables")
FILE = re.compile(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"')
HEAD = """# Made by `make hashes` from constraints.txt, for Python 3.11 on Linux: what engram needs to be built and run.
# pip install --require-hashes -r requirements.txt && pip install --no-deps --no-build-isolation .
"""


def pins() -> dict[str, str]:
    """Return the versions of constraints.txt by canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        canonicalize_name(name): version for name, found, version in (line.partition("==") for line in lines) if found
    }


def needed(names: list[str]) -> set[str]:
    """Return these distributions and all they need here, by canonical name."""
    found: set[str] = set()
    while names:
        name = canonicalize_name(names.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, requires(name) or ())
            names += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def checksums(name: str, version: str) -> list[str]:
    """Return the checksums of all files of a version that the index serves."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as page:
        files = FILE.findall(page.read().decode())
    # of a wheel NAME-VERSION-..., of a source archive NAME-VERSION.tar.gz
    return sorted(
        {digest for file, digest in files if re.split(r"-|\.tar|\.zip", file.replace(".whl", ""))[1] == version}
    )


def written(own: list[Path]) -> Iterator[str]:
    """Yield the lines of the file; `own` are wheels to take instead of the index's, such as the CPU build of torch."""
    version_of = pins()
    names = sorted(needed(["engram", *BUILD]) - {"engram"})
    with ThreadPoolExecutor(8) as pool:
        served = list(pool.map(lambda name: checksums(name, version_of[name]), names))
    for name, digests in zip(names, served, strict=True):
        version, found = version_of[name], digests
        if wheels := [path for path in own if path.name.startswith(f"{name}-{version}")]:
            version = wheels[0].name.split("-")[1]
            found = [hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels]
        lines = [f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in found)]
        yield " \\\n".join(lines)


if __name__ == "__main__":
    (ROOT / "requirements.txt").write_text(HEAD + "\n".join(written([Path(path) for path in sys.argv[1:]])) + "\n")
