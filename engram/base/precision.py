"""In which numbers nets compute. Weights, optimizer states, memory and losses are float32 whatever is chosen."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

Precision: TypeAlias = Literal["float32", "bf16"]
CPU_FLAGS = ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16")
"""Names under which torch lists native bf16 arithmetic of processors."""


def resolve_precision(name: Literal["float32", "bf16", "auto"], device: str) -> Precision:
    """Return the precision that a name stands for: "auto" is bf16 where the device has it in hardware."""
    if name != "auto":
        return name
    return "bf16" if has_native_bf16(torch.device(device)) else "float32"


def has_native_bf16(device: torch.device) -> bool:
    """Return whether a device multiplies bf16 numbers in hardware; where it does not, bf16 is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = cpu_capabilities() if device.type == "cpu" else {}
    return any(flags.get(flag) for flag in CPU_FLAGS)


def cpu_capabilities() -> dict[str, Any]:
    """Return what torch knows of the processor's instructions, by name; nothing if this torch is too old to tell."""
    ask = getattr(torch.cpu, "get_capabilities", None)
    return dict(ask()) if ask else {}


def computing_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which nets on the device compute in this precision, gradients of what they compute included.

    Casted weights are not kept, because weights may be trained while inside.
    """
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def widened(output: Tensor) -> Tensor:
    """Return what a net computed in float32 if it is bf16, else as it is; losses are taken of this."""
    return output.float() if output.dtype == torch.bfloat16 else output
