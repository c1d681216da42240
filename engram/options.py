"""Every option of learners and memories, declared once: type, range, default and help text.

`Learner`, `SummaryMemory`, `RunConfig` and the command line all read these declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypedDict, TypeVar, cast

from engram.base.devices import resolve_device
from engram.base.errors import InputError
from engram.base.precision import resolve_precision
from engram.base.settings import Convert, Count, Default, Range, Settings, resolve
from engram.base.sizes import parse_bytes
from engram.memory.codecs import parse_codec

if TYPE_CHECKING:
    from torch import nn

    from engram.base.interfaces import Augmentation, Classifier, Policy, Retrieval, Scheme, Summarizer

DEFAULT_MEMORY_SIZE = 100
LIMITS = ("memory_size", "memory_bytes", "total_bytes")
"""The options that limit the memory. One of them is given."""

Reading: TypeAlias = Literal["net", "averaged"]
"""Which net answers: the net as trained, or its moving average."""

ByteSize: TypeAlias = Annotated[int | str, Convert(parse_bytes, 'a size in bytes such as 300000, "300KB" or "1.5MiB"')]
CodecName: TypeAlias = Annotated[
    str,
    Convert(
        lambda text: parse_codec(text).name,
        "a codec: float32, uint8, jpeg(QUALITY), webp(QUALITY), avif(QUALITY), avif(QUALITY,SIDE), avif(auto), latent8 "
        "or latent16",
    ),
]
DeviceName: TypeAlias = Annotated[str, Convert(resolve_device, "auto, cpu, cuda, cuda:N or mps")]


class MemoryOptions(TypedDict, total=False):
    """What is kept of the stream."""

    memory_size: Annotated[
        Count | None,
        Default(None),
        "Number of images the memory holds (K); 100 if no limit is given and the method brings none.",
    ]
    memory_bytes: Annotated[
        ByteSize | None,
        Default(None),
        "Bytes of encoded images the memory holds instead, such as 300KB; as many images as fit.",
    ]
    total_bytes: Annotated[
        ByteSize | None,
        Default(None),
        (
            "Bytes of everything that is kept, such as 1MB, instead: images, labels, queue, working copies, averaged "
            "net, stored logits, optimizer states and bookkeeping. The memory holds what the rest leaves."
        ),
    ]
    count_nets: Annotated[
        bool,
        Default(False),
        "Whether total_bytes also counts the weights of the net and of the summarizing net.",
    ]
    slots_per_class: Annotated[
        Count | Literal["auto"] | None,
        Default(None),
        (
            "Slots each class may claim for its summary (k), or auto: K divided by the classes seen. A run on a "
            "paper stream divides K by all classes of the stream if this is not given."
        ),
    ]
    codec: Annotated[
        CodecName,
        Default("float32"),
        (
            "How images are stored: float32 (as they are), uint8, jpeg(QUALITY), webp(QUALITY) or avif(QUALITY), which "
            "takes the fewest bytes; avif(QUALITY,SIDE) makes them smaller first; avif(auto) lowers its quality as "
            "classes get less room. Outputs of a frozen net: latent8 (the default there) or latent16."
        ),
    ]
    keep_originals: Annotated[
        bool,
        Default(False),
        "Keep the first image of each claimed slot, to look at beside its summary.",
    ]
    boundary_gap: Annotated[
        Count,
        Default(50),
        "New classes that arrive within this many batches count as one change of task.",
    ]
    seed: Annotated[
        int,
        Default(0),
        "Seed of every random draw.",
    ]


class ComputeOptions(TypedDict, total=False):
    """Where the computing is done."""

    device: Annotated[
        DeviceName,
        Default("auto"),
        "Auto (a CUDA GPU if there is one, else the CPU), cpu, cuda, cuda:N or mps.",
    ]
    threads: Annotated[
        Count | None,
        Default(None),
        "CPU threads used while it computes; PyTorch's own number if not given.",
    ]
    precision: Annotated[
        Literal["float32", "bf16", "auto"],
        Default("float32"),
        (
            "Numbers that nets compute in: float32, bf16 (about 1.7 times as fast where the hardware has it), or "
            "auto: bf16 where the hardware has it. Weights, memory and losses are float32 always."
        ),
    ]


class TrainingOptions(TypedDict, total=False):
    """How a learner trains and answers."""

    repeats: Annotated[
        Annotated[int, Range(least=1, most=1000)] | None,
        Default(None),
        "Training steps on each stream batch; the method's own number if not given.",
    ]
    classes_total: Annotated[
        Count | None,
        Default(None),
        (
            "Number of classes that softmax heads are made for at the start, as published; heads grow if not "
            "given. A run on a paper or iid stream takes the number of its classes."
        ),
    ]
    average: Annotated[
        Annotated[float, Range(above=0, below=1)] | None,
        Default(None),
        (
            "Decay of a moving average of the weights, such as 0.99, that is kept beside the net; none if not "
            "given. Training is the same with and without it."
        ),
    ]
    answer_from: Annotated[
        Reading | None,
        Default(None),
        "Whether answers come from the net or from the averaged net; from the averaged one if there is one.",
    ]


class ImageOptions(TypedDict, total=False):
    """How image files are read."""

    fit: Annotated[
        Literal["crop", "pad", "stretch"],
        Default("crop"),
        (
            "How images in files that are not square become so: crop (the square in the middle), pad (black bars) or "
            "stretch."
        ),
    ]


class CommonOptions(MemoryOptions, ComputeOptions, total=False):
    """Options that learners and memories share."""


class LearnerOptions(CommonOptions, TrainingOptions, ImageOptions, total=False):
    """All options of a learner but the settings of its parts."""


class PartOptions(TypedDict, total=False):
    """The parts of a learner: settings by name for the part the method has, or a part in its place.

    Args:
        scheme: how one step trains the net.
        augment: how images are changed before each step.
        retrieval: which memory images are replayed.
        policy: which images enter the memory.
        summarize: how the memory is improved.
        classifier: how the learner answers.
        net: settings of the net by name, or a module of your own, which is copied; its output is taken as features.
        theta: settings of the summarizing net, or a module of your own without batch norm, which is copied.
        freeze: how much of a net of your own is frozen: "all", or "until:NAME" up to the layer of that name, the layer
            included. Images go through the frozen part once, and the memory keeps its outputs (latents).
    """

    scheme: Settings | Scheme | None
    augment: Settings | Augmentation | None
    retrieval: Settings | Retrieval | None
    policy: Settings | Policy | None
    summarize: Settings | Summarizer | None
    classifier: Settings | Classifier | None
    net: Settings | nn.Module | None
    theta: Settings | nn.Module | None
    freeze: str | None


class LearnerArguments(LearnerOptions, PartOptions, total=False):
    """Everything that `Learner` takes by name."""


T = TypeVar("T")


def describe_limit(options: Mapping[str, Any]) -> str:
    """Return the limit of a memory in words: `K=100`, `300,000 bytes` or `1,000,000 bytes in all`."""
    if options["total_bytes"] is not None:
        return f"{options['total_bytes']:,} bytes in all"
    return f"K={options['memory_size']}" if options["memory_bytes"] is None else f"{options['memory_bytes']:,} bytes"


def limit_slug(options: Mapping[str, Any]) -> str:
    """Return the limit of a memory as part of a folder's name: `k100`, `300000` or `total-1000000`."""
    if options["total_bytes"] is not None:
        return f"total-{options['total_bytes']}"
    return f"k{options['memory_size']}" if options["memory_bytes"] is None else f"{options['memory_bytes']}"


def resolve_options(kind: type[T], given: Any) -> T:
    """Return all options of a kind, checked, with defaults for those not given; combinations are checked too."""
    options = resolve(kind, given)
    if options.keys() >= set(LIMITS):
        limits = [name for name in LIMITS if options[name] is not None]
        if len(limits) > 1:
            raise InputError(f"{' and '.join(limits)} both limit the memory: give one of them")
        if not limits:
            options["memory_size"] = DEFAULT_MEMORY_SIZE
        if options["count_nets"] and options["total_bytes"] is None:
            raise InputError("count_nets is about total_bytes, which is not given: give it, or leave out count_nets")
    if "average" in options and options["average"] is None and options["answer_from"] == "averaged":
        raise InputError("answer_from is 'averaged', but nothing is averaged: give average=0.99 too")
    if options.get("precision") == "auto":
        options["precision"] = resolve_precision("auto", options["device"])
    return cast(T, options)
