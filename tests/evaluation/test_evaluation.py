"""`evaluate`: any learner, without a folder and without the command line."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram import Evaluation, InputError, Interval, Learner, RunConfig, class_incremental, evaluate, load_dataset, run
from engram.evaluation import METRICS
from engram.streams import from_arrays

STREAM = class_incremental(load_dataset("digits"), seed=0, tasks=2, images_per_class=20)


class Majority:
    """Answers the label it has seen most often; it has nothing of ours."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()

    def observe(self, x: Any, y: Any) -> None:
        self.seen.update(np.asarray(y).tolist())

    def predict(self, x: Any) -> list[int]:
        return [self.seen.most_common(1)[0][0]] * len(x)


def test_anything_with_observe_and_predict_is_evaluated() -> None:
    heard: list[int] = []
    evaluation = evaluate(Majority(), STREAM, on_task=lambda task, so_far: heard.append(len(so_far.matrix)))
    tests = [STREAM.test(task)[1] for task in STREAM.tasks]
    first = next(int(y) for y in STREAM.dataset.train_y[STREAM.tasks[0].batches[0]])
    label = Counter(int(y) for x, ys in STREAM.batches(STREAM.tasks[0]) for y in ys).most_common(1)[0][0]
    assert first in STREAM.tasks[0].classes
    assert evaluation.matrix[0] == [pytest.approx(100 * np.mean(tests[0] == label)), None]
    assert evaluation.matrix[1][1] == 0
    assert heard == [1, 2]


def test_it_measures_what_a_run_measures(tmp_path: Path) -> None:
    options: dict[str, Any] = {"memory_size": 6, "seed": 0}
    result = run(
        RunConfig("er", stream="paper", tasks=2, images_per_class=20, settings={"net": {"width": 8}}, **options),
        tmp_path / "run",
    )
    stream = class_incremental(load_dataset("digits"), 0, stream="paper", tasks=2, images_per_class=20)
    learner = Learner("er", net={"width": 8}, classes_total=4, slots_per_class=1, **options)
    evaluation = evaluate(learner, stream)
    assert evaluation == result.evaluation
    assert learner.explicit_boundaries, "the paper's stream announces its tasks"
    assert evaluation.average_end_accuracy == result.average_end_accuracy


def test_every_metric_is_there_by_name_and_survives_json() -> None:
    evaluation = Evaluation([[80.0, None], [60.0, 90.0]])
    content = json.loads(json.dumps(evaluation.to_dict()))
    assert content["average_end_accuracy"] == evaluation.average_end_accuracy == 75
    assert content["average_forgetting"] == evaluation.average_forgetting == 20
    assert content["average_forgetting_all_tasks"] == evaluation.average_forgetting_all_tasks == 10
    assert content["learning_accuracy"] == evaluation.learning_accuracy == 85
    assert content["average_accuracy_after_task"] == evaluation.average_accuracy_after_task == [80, 75]
    assert content.keys() == {*METRICS, "accuracy_matrix"}
    assert Evaluation.from_dict(content) == evaluation
    assert evaluation.metric("learning_accuracy") == 85


def test_intervals_over_seeds_are_one_call() -> None:
    ends = [Evaluation([[value]]).average_end_accuracy for value in (10.0, 12.0, 14.0)]
    assert str(Interval.of(ends)) == "12.0 ± 5.0"


def test_it_is_drawn(tmp_path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    axes = Evaluation([[80.0, None], [60.0, 90.0]]).plot(label="er")
    (line,) = axes.get_lines()
    assert line.get_ydata().tolist() == [80, 75]
    assert Evaluation([[50.0]]).plot(axes) is axes
    axes.figure.savefig(tmp_path / "curve.png")


def test_a_task_without_test_images_is_refused() -> None:
    images, labels = np.zeros((8, 1, 16, 16), np.uint8), [0, 1] * 4
    stream = class_incremental(from_arrays(images, labels, images[:2], [0, 0]), classes_per_task=1, batch=2)
    with pytest.raises(InputError, match="no test image"):
        evaluate(Majority(), stream)
