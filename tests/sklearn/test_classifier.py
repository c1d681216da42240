"""`EngramClassifier` against scikit-learn itself."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator, check_estimators_overwrite_params

from engram import InputError
from engram.sklearn import EngramClassifier
from engram.sklearn.rows import shape_for, to_images, value_range
from tests.helpers import toy_images

X, Y = toy_images([0, 1] * 20, 0), np.array(["cat", "dog"] * 20)


def small(**changes: Any) -> EngramClassifier:
    return EngramClassifier(**{"method": "er", "memory_size": 10, "options": {"net": {"width": 8}}} | changes)


def linear() -> dict[str, Any]:
    torch.manual_seed(0)
    return {"net": torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 16), torch.nn.ReLU())}


SKIPPED_BY_SCIKIT_LEARN = {"check_array_api_input"}
"""It needs SCIPY_ARRAY_API to be set before scipy is imported."""
EXPECTED_TO_FAIL = {
    "check_estimators_overwrite_params": "it compares pickles, and those of a torch module differ each time; it passes "
    "without a net of one's own",
}


@pytest.mark.filterwarnings("ignore")
def test_every_check_of_scikit_learn_passes() -> None:
    estimator = small(passes=10, options=linear())
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=EXPECTED_TO_FAIL)
    assert len(results) > 50
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert failed == {}
    others = {result["check_name"] for result in results if result["status"] != "passed"}
    assert others <= SKIPPED_BY_SCIKIT_LEARN | EXPECTED_TO_FAIL.keys()
    check_estimators_overwrite_params("EngramClassifier", small())


def test_images_and_their_rows_give_the_same_answers() -> None:
    images = small().fit(X, Y)
    rows = small().fit(X.reshape(len(X), -1), Y)
    assert np.array_equal(images.predict_proba(X), rows.predict_proba(X.reshape(len(X), -1)))
    assert images.classes_.tolist() == ["cat", "dog"]
    assert images.predict_proba(X).sum(1) == pytest.approx(1)


def test_it_learns_and_scores() -> None:
    model = small(passes=20).fit(X, Y)
    assert model.score(toy_images([0, 1] * 10, 9), ["cat", "dog"] * 10) > 0.9


def test_new_classes_may_come_at_any_time() -> None:
    model = small()
    model.partial_fit(X[:10], Y[:10], classes=["cat", "dog", "zebra"])
    shares = model.predict_proba(X[:3])
    assert shares.shape == (3, 3)
    assert not shares[:, 2].any(), "no zebra came so far"
    model.partial_fit(toy_images([2] * 4, 0), ["ape"] * 4)
    assert model.classes_.tolist() == ["ape", "cat", "dog", "zebra"]
    assert set(model.predict(X)) <= {"ape", "cat", "dog"}
    assert model.learner_.iteration == 2


def test_tools_of_scikit_learn_work() -> None:
    flatten = FunctionTransformer(lambda x: x.reshape(len(x), -1))
    pipeline = make_pipeline(flatten, small())
    assert len(cross_val_score(pipeline, X, Y, cv=2)) == 2
    search = GridSearchCV(small(), {"memory_size": [4, 8], "passes": [1, 2]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_["memory_size"] in (4, 8)
    twin = clone(search.best_estimator_)
    assert twin.get_params() == search.best_estimator_.get_params()
    assert not hasattr(twin, "learner_")


def test_a_pickled_model_answers_alike() -> None:
    model = small().fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    again.partial_fit(X[:5], Y[:5])
    assert again.learner_.iteration == model.learner_.iteration + 1


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="correct image_shape"):
        small(image_shape=(3, 16, 16)).fit(X.reshape(len(X), -1), Y)
    with pytest.raises(InputError, match="give at least 1"):
        small(passes=0).fit(X, Y)
    model = small().fit(X, Y)
    with pytest.raises(InputError, match="give all one shape"):
        model.predict(np.zeros((2, 1, 32, 32)))


@pytest.mark.parametrize(
    ("width", "shape"), [(256, (1, 16, 16)), (3072, (3, 32, 32)), (10, (1, 16, 16)), (300, (1, 18, 18))]
)
def test_rows_become_images(width: int, shape: tuple[int, int, int]) -> None:
    rows = np.linspace(-3, 5, 2 * width).reshape(2, width)
    assert shape_for(rows, None) == shape
    images = to_images(rows, shape, value_range(rows))
    assert images.shape == (2, *shape)
    assert images.reshape(2, -1)[:, :width] == pytest.approx((rows + 3) / 8, abs=1e-6)
    assert not images.reshape(2, -1)[:, width:].any()
