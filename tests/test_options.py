"""Options are declared once, and everybody reads the same declaration."""

import ast
from pathlib import Path

import pytest
import torch

from engram import InputError, Learner, RunConfig, SummaryMemory
from engram.base.devices import using_threads
from engram.base.settings import schema_of
from engram.cli.run_command import GROUPS, build_parser
from engram.experiment.config import RunOptions
from engram.options import CommonOptions, LearnerOptions

ENGRAM = Path(__file__).parents[1] / "engram"
FUNCTIONS_WITH_PARAMETERS_OF_THEIR_OWN = {"streams", "nets", "memory", "paper"}
"""Packages whose functions take sizes, seeds and names of their own."""


def declarations() -> dict[str, list[str]]:
    """Return where each option's name is an annotated field of a class, or a parameter of a public constructor."""
    found: dict[str, list[str]] = {}
    for file in ENGRAM.rglob("*.py"):
        package = file.relative_to(ENGRAM).parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            names = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and each.value is None]  # type: ignore[union-attr]
            makers = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            if package not in FUNCTIONS_WITH_PARAMETERS_OF_THEIR_OWN:
                names += [each.arg for maker in makers for each in (*maker.args.args, *maker.args.kwonlyargs)]
            for name in names:
                found.setdefault(name, []).append(f"{file.relative_to(ENGRAM)}:{node.name}")
    return found


def test_no_option_is_declared_twice() -> None:
    found = declarations()
    for name in schema_of(RunOptions):
        places = [place for place in found[name] if place.endswith(("Options", ":Learner", ":RunConfig"))]
        assert len(places) == 1, f"{name} is declared in {places}"
    named = [name for name, places in found.items() if any("SummaryMemory" in place for place in places)]
    assert not set(named) & set(schema_of(CommonOptions))


def test_learner_memory_run_and_command_line_know_the_same_options() -> None:
    assert Learner().options.keys() == schema_of(LearnerOptions).keys()
    assert SummaryMemory().options.keys() == schema_of(CommonOptions).keys()
    assert RunConfig().options.keys() == schema_of(RunOptions).keys()
    parser = build_parser("scr+ssd")
    offered = {action.dest for action in parser._actions}
    assert schema_of(RunOptions).keys() <= offered
    assert set().union(*(schema_of(group) for group in GROUPS.values())) == schema_of(RunOptions).keys()


@pytest.mark.parametrize("name", schema_of(RunOptions))
def test_every_option_has_a_help_text(name: str) -> None:
    assert len(schema_of(RunOptions)[name].help.split()) >= 3


def test_a_device_that_is_not_there_is_refused_at_once_with_those_that_are() -> None:
    assert Learner(device="auto").device == torch.device("cpu") or torch.cuda.is_available()
    if not torch.cuda.is_available():
        for name in ("cuda", "cuda:1"):
            with pytest.raises(InputError, match=rf"device '{name}' is not available here: there is cpu"):
                Learner(device=name)
    with pytest.raises(InputError, match="device is 'gpu': need auto, cpu, cuda, cuda:N or mps; there is cpu"):
        SummaryMemory(device="gpu")
    with pytest.raises(InputError, match="device is 'meta'"):
        Learner(device="meta")


def test_threads_are_used_while_computing_and_given_back() -> None:
    before = torch.get_num_threads()
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    learner = Learner("er", memory_size=4, threads=before + 1, net={"width": 16})
    seen: list[int] = []
    loss = learner.scheme.loss
    learner.scheme.loss = lambda *a: seen.append(torch.get_num_threads()) or loss(*a)  # type: ignore[method-assign]
    learner.observe(torch.rand(4, 1, 16, 16), [0, 1, 0, 1])
    assert seen == [before + 1]
    assert torch.get_num_threads() == before
