"""Who may import whom, as docs/architecture.md says, and how large modules may be."""

import ast
from pathlib import Path

import pytest

ENGRAM = Path(__file__).parents[1] / "engram"
PART_PACKAGES = {"streams", "nets", "schemes", "augmentations", "retrieval", "memory", "summarize", "classifiers"}
COMPOSING = {"methods", "options", "stream_consumer", "learner", "summary_memory", "testing"}
"""Modules that put the packages of parts together."""
ABOVE = ("sklearn", "avalanche", "evaluation", "experiment", "report", "paper", "serve", "cli")
"""Packages on top, from below: each may use those before it."""
ALLOWED = {"schemes": {"augmentations"}}
"""What a package of parts may use besides the base and persistence packages."""


def imported(file: Path) -> set[str]:
    """Return the first names below `engram` of all that a file imports, also inside of functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
        found |= {module.split(".")[1] for module in modules if module.startswith("engram.")}
    return found


def imports_of(package: str) -> set[str]:
    return set().union(*map(imported, (ENGRAM / package).rglob("*.py"))) - {package}


@pytest.mark.parametrize("package", sorted(PART_PACKAGES))
def test_packages_of_parts_do_not_know_each_other(package: str) -> None:
    others = PART_PACKAGES | COMPOSING | set(ABOVE)
    assert not imports_of(package) & others - ALLOWED.get(package, set())


@pytest.mark.parametrize("level", range(len(ABOVE)))
def test_packages_on_top_are_used_from_above_only(level: int) -> None:
    assert not imports_of(ABOVE[level]) & set(ABOVE[level + 1 :])


def test_what_is_below_does_not_know_what_is_on_top() -> None:
    for file in ENGRAM.glob("*.py"):
        if file.name not in ("__main__.py", "__init__.py"):
            assert not imported(file) & set(ABOVE), file.name


def test_no_module_has_more_than_350_lines() -> None:
    lengths = {str(file.relative_to(ENGRAM)): len(file.read_text().splitlines()) for file in ENGRAM.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 350} == {}


def test_there_are_at_most_six_modules_at_the_top_level() -> None:
    modules = sorted(file.stem for file in ENGRAM.glob("*.py") if not file.stem.startswith("__"))
    assert modules == sorted(COMPOSING)


def test_a_module_is_not_hidden_by_a_function_of_the_same_name() -> None:
    """`import engram.a.b` gives the module b, also where the package a exports a function."""
    for package in (path for path in ENGRAM.rglob("*") if (path / "__init__.py").is_file()):
        modules = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
        tree = ast.parse((package / "__init__.py").read_text())
        names = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if node.module and not node.module.endswith(f"{package.name}")
        }
        assert not modules & names, package


LONGEST_COPY = 12


def test_no_two_places_share_more_than_twelve_lines() -> None:
    """Lines of code as they stand; blank lines, comments, docstrings and imports do not count."""
    seen: dict[tuple[str, ...], str] = {}
    for file in sorted(ENGRAM.rglob("*.py")):
        lines = code_lines(file)
        for start in range(len(lines) - LONGEST_COPY):
            run = tuple(text for _, text in lines[start : start + LONGEST_COPY + 1])
            place = f"{file.relative_to(ENGRAM)}:{lines[start][0]}"
            assert seen.setdefault(run, place) == place, f"{place} repeats {seen[run]}"


def code_lines(file: Path) -> list[tuple[int, str]]:
    """Return the lines of code of a file, each with its number."""
    source = file.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = [(number, line.strip()) for number, line in enumerate(source.splitlines(), 1)]
    return [(number, line) for number, line in numbered if line and line[0] != "#" and number not in left_out]
