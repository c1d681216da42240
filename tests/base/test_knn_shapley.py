"""KNN-Shapley against the definition: the mean marginal gain over all orders, from all subsets."""

import itertools
import math

import pytest
import torch

from engram.base.knn_shapley import knn_shapley, sample_per_class


def utility(subset: tuple[int, ...], distances: torch.Tensor, matches: torch.Tensor, neighbors: int) -> float:
    nearest = sorted(subset, key=lambda i: float(distances[i]))[:neighbors]
    return sum(float(matches[i]) for i in nearest) / neighbors


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("neighbors", [1, 3])
def test_equals_enumeration_of_all_subsets(count: int, neighbors: int) -> None:
    generator = torch.Generator().manual_seed(count)
    candidates, points = torch.rand(count, 4, generator=generator), torch.rand(3, 4, generator=generator)
    labels = torch.randint(2, (count,), generator=generator)
    point_labels = torch.tensor([0, 1, 0])
    values = knn_shapley(candidates, labels, points, point_labels, neighbors)
    for point in range(3):
        distances = ((candidates - points[point]) ** 2).sum(1)
        matches = (labels == point_labels[point]).float()
        for i in range(count):
            others = [j for j in range(count) if j != i]
            expected = 0.0
            for size in range(count):
                for subset in itertools.combinations(others, size):
                    gain = utility((*subset, i), distances, matches, neighbors) - utility(
                        subset, distances, matches, neighbors
                    )
                    expected += gain / (count * math.comb(count - 1, size))
            assert float(values[point, i]) == pytest.approx(expected, abs=1e-6)


def test_samples_up_to_so_many_of_each_class() -> None:
    labels = torch.tensor([0, 0, 0, 2, 2, 5])
    chosen = sample_per_class(labels, 2, torch.Generator().manual_seed(0))
    assert labels[chosen].tolist() == [0, 0, 2, 2, 5]
    assert len(set(chosen.tolist())) == 5
    assert len(sample_per_class(labels[:0], 2, torch.Generator())) == 0
