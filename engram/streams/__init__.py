"""Where samples come from: data sets, and the order their images arrive in."""

from engram.streams.dataset import DataError, Dataset, from_arrays
from engram.streams.loading import DATASETS, load_dataset
from engram.streams.order import Scenario, Task, TaskStream, class_incremental

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "Scenario",
    "Task",
    "TaskStream",
    "class_incremental",
    "from_arrays",
    "load_dataset",
]
