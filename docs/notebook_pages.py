"""A hook of mkdocs: every notebook under docs/notebooks becomes a page, with its saved outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb")):
        content = as_markdown(json.loads(path.read_text(encoding="utf-8")))
        download = f"\n[Download this notebook]({path.name})\n"
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=content + download))
    return files


def as_markdown(notebook: dict[str, Any]) -> str:
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    """Return the text of a cell, and after it what the cell printed and drew."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(_shown(output) for output in cell["outputs"])]


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        return f"![{''.join(data['text/plain'])}](data:image/png;base64,{data['image/png'].strip()})"
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
