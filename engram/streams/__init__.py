"""Data sets, and streams that deliver their images in a certain order."""

from engram.streams.adapters import to_dataset
from engram.streams.cache import DecodingStopped, stop_decoding_on
from engram.streams.dataset import DataError, Dataset, from_arrays
from engram.streams.loading import DATASETS, load_dataset, register_dataset
from engram.streams.order import Scenario, StreamOptions, Task, TaskStream, class_incremental, default_batch
from engram.streams.sources import (
    BATCH,
    Batches,
    ImageReading,
    image_files,
    open_photos,
    read_if_files,
    read_images,
    to_batches,
)

__all__ = [
    "BATCH",
    "DATASETS",
    "Batches",
    "DataError",
    "Dataset",
    "DecodingStopped",
    "ImageReading",
    "Scenario",
    "StreamOptions",
    "Task",
    "TaskStream",
    "class_incremental",
    "default_batch",
    "from_arrays",
    "image_files",
    "load_dataset",
    "open_photos",
    "read_if_files",
    "read_images",
    "register_dataset",
    "stop_decoding_on",
    "to_batches",
    "to_dataset",
]
