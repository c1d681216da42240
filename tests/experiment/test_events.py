"""Events read back."""

from pathlib import Path

from engram.experiment.events import read_events, summarizing_losses


def test_torn_lines_and_repeated_rounds_are_passed_over(tmp_path: Path) -> None:
    lines = [
        '{"time": 1, "event": "round", "batch": 6, "gradient_matching": 2.0, "relationship": 1.0}',
        '{"time": 1, "event": "rou',
        '{"time": 2, "event": "round", "batch": 6, "gradient_matching": 4.0, "relationship": 1.0}',
        '{"time": 3, "event": "task", "task": 1}',
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    assert summarizing_losses(tmp_path) == [(6, {"gradient_matching": 4.0, "relationship": 1.0})]
    assert [event["event"] for event in read_events(tmp_path)] == ["round", "round", "task"]
    assert read_events(tmp_path / "nowhere") == []
