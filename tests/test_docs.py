"""What README and docs say was measured is what results/ holds. Their examples run, and their links lead somewhere."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import generate
import pytest
import yaml

import engram
from engram.methods import METHODS
from engram.streams import DATASETS

ROOT = Path(__file__).parents[1]
RUN_ELSEWHERE = ("photos.md", "serve.md")
"""Pages whose examples need photos or a server: tests/test_photos_tutorial.py and tests/serve/test_kill.py run them."""
PAGES = sorted((ROOT / "docs").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

BY_HAND = {
    "README.md": {"3.11", "16 kB", "95 %", "1 MB", "300,000 bytes"},
    "architecture.md": {"2.13"},
    "index.md": {"3.11"},
    "latent-replay.md": {"50 KB", "500 KB"},
    "byte-budget.md": {"150 KiB"},
    "glossary.md": {"3,072 bytes"},
    "memory.md": {"4.4", "0.7", "300,000 bytes"},
    "method.md": {"6.4", "0.9", "0.01", "0.07", "0.1", "46.7", "95 %"},
    "paper.md": {"95 %"},
    "performance.md": {"60 s"},
    "photos.md": {"200 kB"},
    "results.md": {
        "9.0",
        "10.7",
        "12.1",
        "5.8",
        "0.2",
        "3.3",
        "0.4",
        "1.3",
        "95 %",
        "150 KiB",
        "153,600 bytes",
        "307,200 bytes",
        "5 %",
        "10 %",
    },
}
"""Numbers with a decimal point or a unit that are no measurement of ours: settings, versions, chance, the paper's
figures, sizes of nets, and the range of pixel values in a picture."""
MEASURED = re.compile(r"\d[\d,]*\.\d+|\d[\d,]* (?:s|ms|kB|KB|MB|KiB|bytes|dB|%)(?!\w)")


@pytest.mark.parametrize("path", generate.documents(), ids=lambda path: path.name)
def test_documents_say_what_the_results_say(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert generate.filled(text) == text, "run make docs-results"


@pytest.mark.parametrize("path", generate.documents(), ids=lambda path: path.name)
def test_no_measured_figure_is_written_by_hand(path: Path) -> None:
    text = generate.MARK.sub("", path.read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    found = set(MEASURED.findall(text)) - BY_HAND.get(path.name, set())
    assert not found, f"mark these as values: {sorted(found)}"


def test_every_committed_result_stands_in_a_document() -> None:
    used = (ROOT / "docs" / "measured.py").read_text().replace("'", '"')
    assert [path.stem for path in (ROOT / "results").glob("*.json") if f'"{path.stem}"' not in used] == []
    text = "".join(path.read_text(encoding="utf-8") for path in generate.documents())
    marked = {(match[1], match[2]) for match in generate.MARK.finditer(text)}
    offered = {("table", name) for name in generate.TABLES} | {("value", name) for name in generate.VALUES}
    assert marked == offered


def test_a_changed_result_is_noticed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = set(re.findall(r"\| `scr` \| raw .*(\*\*\d+\.\d.*\*\*)", text))
    changed = text.replace(shown, "**99.9**")
    assert generate.filled(changed) == text != changed


def python_blocks(path: Path) -> list[str]:
    """Return the blocks of Python in a page, or the cells of code in a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def shown_outputs(page: Path) -> dict[int, str]:
    """Return the texts that stand below blocks of Python on a page, by the number of the block."""
    found = re.findall(r"```python\n.*?```(?:\n\n```text\n(.*?)```)?", page.read_text("utf-8"), flags=re.DOTALL)
    return {number: text for number, text in enumerate(found) if text and page.suffix == ".md"}


def without_figures(text: str) -> str:
    """Return a text with # for each number."""
    return re.sub(r"\d[\d.,]*", "#", text)


@pytest.mark.parametrize(
    "path",
    [path for path in (*PAGES, *NOTEBOOKS) if python_blocks(path) and path.name not in RUN_ELSEWHERE],
    ids=lambda path: path.name,
)
def test_examples_run_one_after_the_other(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They print what a block of text below shows, figures aside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {}
    shown = shown_outputs(path)
    known = {id(table): (table, dict(table)) for table in (METHODS, DATASETS)}
    try:
        for number, block in enumerate(python_blocks(path)):
            exec(compile(block, f"{path.name}, block {number}", "exec"), names)
            printed = capsys.readouterr().out
            assert number not in shown or without_figures(printed) == without_figures(shown[number])
    finally:
        for table, before in known.values():
            table.clear()
            table.update(before)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_small_and_show_their_outputs(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "display_data" in kinds
    assert "error" not in kinds
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert path.stat().st_size < 60_000


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", [*PAGES, *sorted(ROOT.glob("*.md")), ROOT / "llms.txt"], ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_and_notebook_is_in_the_menu_of_the_site() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for each in (entry if isinstance(entry, list) else entry.values()) for page in pages(each)]

    menu = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    made = ["commands.md", "methods.md", *(f"notebooks/{path.stem}.md" for path in NOTEBOOKS)]
    assert sorted(menu) == sorted([*(path.name for path in PAGES), *made])


def docstring_of(name: str) -> str:
    """Return the docstring of a public name such as `engram.serve.Client`, without importing what may be missing."""
    package, _, short = name.rpartition(".")
    for path in sorted((ROOT / package.replace(".", "/")).glob("*.py" if "." in package else "**/*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == short:
                return ast.get_docstring(node) or ""
    raise AssertionError(f"{name} is not defined in {package}")


def test_the_reference_has_every_public_name_with_an_example() -> None:
    page = ROOT / "docs" / "api.md"
    text = page.read_text(encoding="utf-8")
    public = {f"engram.{name}" for name in engram.__all__ if name != "__version__"}
    for package in ("sklearn", "avalanche", "serve"):
        source = (ROOT / "engram" / package / "__init__.py").read_text(encoding="utf-8")
        names = ast.literal_eval(re.findall(r"^__all__ = (.*)$", source, flags=re.MULTILINE)[0])
        public |= {f"engram.{package}.{name}" for name in names}
    assert sorted(re.findall(r"^::: ([\w.]+)$", text, flags=re.MULTILINE)) == sorted(public)
    shown = " ".join(python_blocks(page)) + "".join(part for part in text.split("::: ") if "`check_method(" in part)
    without = {name for name in public if not re.search(rf"\b{name.rpartition('.')[2]}\b", shown)}
    assert [name for name in sorted(without) if ">>>" not in docstring_of(name)] == []


@pytest.mark.parametrize("name", ["Learner", "SummaryMemory"])
def test_the_reference_has_every_method_that_documents_use(name: str) -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    entry = text.split(f"::: engram.{name}\n")[1].split(":::")[0]
    listed = set(re.findall(r"\w+", re.findall(r"members: \[(.*)\]", entry)[0]))
    calls = {"Learner": r"\b[lL]earner\.(\w+)\(", "SummaryMemory": r"\b(?:SummaryMemory|memory)\.(\w+)\("}[name]
    used = {call for page in (ROOT / "README.md", *PAGES) for call in re.findall(calls, page.read_text("utf-8"))}
    assert used
    assert used <= listed
    assert listed - {"labels"} <= set(dir(getattr(engram, name)))
