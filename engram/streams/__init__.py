"""Data sets, and streams that deliver their images in a certain order."""

from engram.streams.adapters import to_dataset
from engram.streams.cache import DecodingStopped, stop_decoding_on
from engram.streams.dataset import DataError, Dataset, from_arrays
from engram.streams.loading import DATASETS, load_dataset, register_dataset
from engram.streams.order import Scenario, StreamOptions, Task, TaskStream, class_incremental, default_batch

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "DecodingStopped",
    "Scenario",
    "StreamOptions",
    "Task",
    "TaskStream",
    "class_incremental",
    "default_batch",
    "from_arrays",
    "load_dataset",
    "register_dataset",
    "stop_decoding_on",
    "to_dataset",
]
