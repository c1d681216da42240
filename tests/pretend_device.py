"""A device that is not there: tensors that say they are on it, compute on the CPU, and refuse to be mixed.

Real devices are rare where tests run. Here every operation is watched: one that gets tensors of both the pretended
device and the CPU raises a `MixedDevices` error, as a GPU would, unless the real one would also accept it (a CPU
scalar, or CPU indices).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that take indices on the CPU."""
AUTOCAST = "AutocastPrivateUse1"
LIBRARIES: list[torch.library.Library] = []
"""What was registered lasts as long as these do."""
casted: list[str] = []
"""Names of the products that were computed in bf16, one entry each."""

_registered = False


class MixedDevices(RuntimeError):
    """An operation got tensors of two devices."""


def register() -> None:
    """Make the device known to torch; a second call changes nothing."""
    global _registered
    if not _registered:
        _setup_privateuseone_for_python_backend(NAME)
        _let_autocast_cast()
        _registered = True


def _let_autocast_cast() -> None:
    """Give the device what GPUs have: under `autocast`, products are computed in bf16 and all else as it is."""
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, dispatch_key=AUTOCAST)
    products = torch.library.Library("aten", "IMPL")
    for operation in (torch.ops.aten.conv2d.default, torch.ops.aten.linear.default, torch.ops.aten.matmul.default):
        products.impl(operation, _casting(operation), AUTOCAST)
    LIBRARIES.extend([others, products])


def _casting(operation: Any) -> Any:
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, AUTOCAST))

    def cast(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(key):
            casted.append(operation.overloadpacket.__name__)
            return operation(*tree_map(_as_bf16, args), **kwargs)

    return cast


def _as_bf16(value: Any) -> Any:
    return value.to(torch.bfloat16) if isinstance(value, Tensor) and value.dtype == torch.float32 else value


class PretendTensor(Tensor):
    """A tensor that says it is on the pretended device; `inner` is the real one."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> PretendTensor:
        made: PretendTensor = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
            layout=inner.layout,
        )
        return made

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def tolist(self) -> Any:
        return self.inner.tolist()

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, value: PretendTensor) -> None:
        """Take the place of the other in every respect: torch swaps what it knows, and we swap the real tensor."""
        self.inner = value.inner
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


class _Constructors(TorchFunctionMode):
    """Makes tensors from numbers, which torch does before operations can be watched."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return function(*args, **kwargs).to(device)
        if function is Tensor.new_tensor and isinstance(args[0], PretendTensor):
            return torch.tensor(args[1], dtype=args[0].dtype).to(args[0].device)
        return function(*args, **kwargs)


@contextmanager
def pretending() -> Iterator[None]:
    """While inside, the pretended device can be used like any other."""
    with _Operations(), _Constructors():
        yield


def _compute(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = operation.overloadpacket.__name__
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    pretending = any(isinstance(tensor, PretendTensor) for tensor in tensors)
    asked = kwargs.get("device")
    if asked is not None:
        pretending_result = torch.device(asked).type == NAME
        kwargs = kwargs | {"device": torch.device("cpu") if pretending_result else asked}
    else:
        pretending_result = pretending
    if pretending and name not in ("_to_copy", "copy_"):
        foreign = [tensor for tensor in tensors if not isinstance(tensor, PretendTensor) and tensor.ndim]
        if foreign and name not in INDEXING:
            shapes = [tuple(tensor.shape) for tensor in foreign]
            raise MixedDevices(f"{name} got tensors of the CPU {shapes} beside tensors of another device")
    result = operation(*tree_map(_real, args), **tree_map(_real, kwargs))
    if pretending and torch.Tag.inplace_view in operation.tags:
        _reshape_wrappers(operation, args, kwargs)
    own = {id(tensor.inner): tensor for tensor in tensors if isinstance(tensor, PretendTensor)}

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Tensor) or not pretending_result:
            return value
        return own.get(id(value)) if id(value) in own else PretendTensor(value)

    return tree_map(wrapped, result)


def _reshape_wrappers(operation: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Let an operation that changes shapes in place, such as `unsqueeze_`, change what the wrappers say too."""
    before = torch._C._meta_in_tls_dispatch_include()
    with no_dispatch():
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            operation(*args, **kwargs)
        finally:
            torch._C._set_meta_in_tls_dispatch_include(before)


def _real(value: Any) -> Any:
    return value.inner if isinstance(value, PretendTensor) else value
