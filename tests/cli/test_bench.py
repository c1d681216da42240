import json

import pytest

from engram.cli import bench_command, huge_pages, main

MEASURED = {
    "cpu_flags": ["avx2", "fma3"],
    "threads": {"1": {"matmul_gflops": 80.0, "step": {"seconds": 1.2, "gflop": 72.0}}},
    "targets": [
        {"name": "everything else, 1 thread", "value": 1.25, "limit": 5, "at_most": True, "unit": "%", "met": True},
        {"name": "engram --help", "value": 0.61, "limit": 0.5, "at_most": True, "unit": "s", "met": False},
    ],
}


def test_bench_shows_each_ratio_beside_its_target(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(bench_command, "bench", lambda threads, repetitions, progress: progress() or MEASURED)
    assert main(["bench"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("everything else" in line and "1.2 %" in line and "at most 5 %" in line for line in lines)
    assert any("engram --help" in line and "not met" in line for line in lines)
    assert "processor: avx2 fma3" in lines


def test_bench_as_json(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    asked = []
    monkeypatch.setattr(
        bench_command, "bench", lambda threads, repetitions, progress: asked.append((threads, repetitions)) or MEASURED
    )
    assert main(["bench", "--json", "--threads", "1", "2", "--repetitions", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == MEASURED
    assert asked == [([1, 2], 3)]


@pytest.fixture
def restarted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    for name in huge_pages.SETTINGS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    commands: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda program, arguments: commands.append([program, *arguments]))
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr("sys.orig_argv", ["python3", "-m", "engram", "run", "--seeds", "2"])
    monkeypatch.setattr("sys.executable", "/somewhere/python3")
    return commands


def test_a_training_command_starts_itself_again_with_huge_pages_once(restarted) -> None:
    huge_pages.restart_with_huge_pages()
    assert restarted == [["/somewhere/python3", "/somewhere/python3", "-m", "engram", "run", "--seeds", "2"]]
    huge_pages.restart_with_huge_pages()
    assert len(restarted) == 1


def test_what_the_user_set_is_left_alone(restarted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    huge_pages.restart_with_huge_pages()
    assert not restarted


def test_without_glibc_nothing_happens(restarted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    huge_pages.restart_with_huge_pages()
    assert not restarted


def test_called_from_python_the_process_stays_what_it_is(restarted, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert not restarted
