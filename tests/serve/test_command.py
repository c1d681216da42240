"""`engram serve`: names of learners, and what it refuses to begin with."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import engram
from engram.base.errors import InputError
from engram.cli.serve_command import main, named_folders
from tests.serve.serving import some_learner


def test_learners_are_named_by_their_folders_or_as_given(tmp_path: Path) -> None:
    assert named_folders([str(tmp_path / "one"), f"two={tmp_path}/other"]) == {
        "one": tmp_path / "one",
        "two": tmp_path / "other",
    }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["a/x", "b/x"], "two learners are named 'x'"),
        (["=x"], "cannot be the name"),
        (["../a=b"], "cannot be the name"),
    ],
)
def test_odd_names_are_refused(given: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        named_folders(given)


def test_other_machines_are_not_served_without_a_token(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with pytest.raises(InputError, match="--token-file"):
        main([str(some_learner(tmp_path / "toy")), "--host", "0.0.0.0", "--port", "0"])


def test_only_the_modules_of_the_server_need_the_extra() -> None:
    """The command imports these when it has checked that the extra is there; nothing else imports them."""
    web = re.compile(r"^(?:from|import) (?:fastapi|starlette|uvicorn|python_multipart)", re.MULTILINE)
    serving = re.compile(r"^(?:from|import) engram\.serve\.(?:application|routes|server)", re.MULTILINE)
    apart = {"application", "cluster", "server"}
    sources = {path.stem: path.read_text() for path in Path(engram.__file__).parent.rglob("*.py")}
    assert {name for name, text in sources.items() if web.search(text)} == apart | {"routes"}
    assert {name for name, text in sources.items() if serving.search(text)} == apart


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "uvicorn" else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(InputError, match="serving needs uvicorn, not installed here: `pip install uvicorn`"):
        main([str(tmp_path)])


def test_options_of_a_new_learner_need_one(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "toy")
    with pytest.raises(InputError, match="memory_size is for a new learner"):
        main([str(folder), "--memory-size", "5", "--port", "0"])
