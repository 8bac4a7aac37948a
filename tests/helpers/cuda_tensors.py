"""Tensors that say they are on a CUDA device, and what is special to operations there, for `fake_cuda.py`."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default, aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten.to.other}
WAITS = {
    aten.equal.default,
    aten.item.default,
    aten._local_scalar_dense.default,
    aten.is_nonzero.default,
    aten.allclose.default,
    aten.linalg_solve.default,
    aten.multinomial.default,
}  # operations that hand a number to the host, or look at one on the way; besides those that torch tags
TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
RANDOM = {
    "rand", "randn", "randint", "randperm", "normal", "uniform", "bernoulli", "exponential", "multinomial", "dropout",
}  # fmt: skip
ON_CPU_ALONE = ("mkldnn", "onednn", "_for_cpu", "_weight_int8pack", "quantized::")
ATTENTION = aten.scaled_dot_product_attention.default


class Traits:
    """What is to be known of an operation."""

    def __init__(self, func: Any) -> None:
        self.name = name = str(func)
        self.copies, self.indexes, self.is_mutable = func in COPIES, func in INDEXED, func._schema.is_mutable
        self.waits = func in WAITS or bool(TAGS & set(func.tags))
        self.is_random = bool(RANDOM.intersection(word.strip("_") for word in name.split(".")))
        self.is_on_cpu_alone, self.makes_empty = any(part in name for part in ON_CPU_ALONE), "empty" in name


traits = cache(Traits)  # what an operation is called is put together anew each time


class CudaTensor(Tensor):
    """A tensor that says it is on CUDA. Its values are in `numbers`, a tensor on the CPU."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, tensor: Tensor) -> CudaTensor:
        with torch._C._InferenceMode(False):  # views of weights, which are normal tensors, must be normal too
            like = {"strides": tensor.stride(), "storage_offset": tensor.storage_offset(), "dtype": tensor.dtype}
            made = Tensor._make_wrapper_subclass(cls, tensor.shape, **like, device=CUDA)  # type: ignore[attr-defined]
        made.numbers = tensor.detach()
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} on a tensor of the pretended device, which is not there any more")

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def untyped_storage(self) -> Any:
        return self.numbers.untyped_storage()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
            "first."
        )

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __deepcopy__(self, memo: Any) -> Any:
        made = CudaTensor(copy.deepcopy(self.numbers, memo))
        return nn.Parameter(made, requires_grad=False) if isinstance(self, nn.Parameter) else made

    def __repr__(self, **unused: Any) -> str:  # type: ignore[override]
        return f"CudaTensor({self.numbers!r})"


def numbers_of(x: Any) -> Any:
    """What a tensor of the device holds; anything else is itself."""
    return x.numbers if isinstance(x, CudaTensor) else x


def on_cuda(module: nn.Module) -> nn.Module:
    """The module with its parameters and buffers on the device, in place; what was one tensor stays one."""
    made: dict[int, Any] = {}

    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                if id(weight) not in made:
                    made[id(weight)] = nn.Parameter(CudaTensor(weight.detach()), requires_grad=False)
                part._parameters[name] = made[id(weight)]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = made.setdefault(id(buffer), CudaTensor(buffer.detach()))
    return module


def tensors_in(tree: Any) -> list[Tensor]:
    """All that are in tuples, lists and dictionaries of each other."""
    if isinstance(tree, Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (tuple, list)) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same with what `function` makes of each leaf."""
    if isinstance(tree, (tuple, list)):
        return type(tree)([mapped(function, part) for part in tree])
    if isinstance(tree, dict):
        return {key: mapped(function, part) for key, part in tree.items()}
    return function(tree)


@contextmanager
def guards() -> Iterator[None]:
    """torch's operators make the device of their operands the current one before anything here hears of them: with
    CUDA's guard, which a build for the CPU lacks. The CPU's does nothing, and stands in for it."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    before = registry[1]
    registry[1] = registry[0]
    try:
        yield
    finally:
        registry[1] = before
