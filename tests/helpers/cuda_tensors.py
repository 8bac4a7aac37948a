"""Tensors that say they are on a CUDA device, and what is special to operations there, for `fake_cuda.py`."""

from __future__ import annotations

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
ATTENTION = aten.scaled_dot_product_attention.default
# What hands a number to the host, or looks at one on the way, is tagged by torch, but for these. Random numbers are not
# kept with a graph here.
WAITS = {aten.is_nonzero.default, aten.linalg_solve.default}
TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
ON_CPU_ALONE = ("mkldnn", "onednn", "_for_cpu", "_weight_int8pack", "quantized::")


class Traits:
    """What is to be known of an operation."""

    def __init__(self, func: Any) -> None:
        self.name = name = str(func)
        self.copies, self.indexes, self.is_mutable = func in COPIES, func in INDEXED, func._schema.is_mutable
        self.waits = func in WAITS or (bool(TAGS & set(func.tags)) and func is not ATTENTION)
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

    def tolist(self) -> Any:
        return self.cpu().tolist()


def numbers_of(x: Any) -> Any:
    """What a tensor of the device holds; anything else is itself."""
    return x.numbers if isinstance(x, CudaTensor) else x


def on_cuda(module: nn.Module) -> nn.Module:
    """The module with its parameters and buffers on the device, in place; what was one tensor stays one."""
    made: dict[int, Any] = {}
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, x in tensors.items():
                if x is not None and id(x) not in made:
                    moved = CudaTensor(x.detach())
                    made[id(x)] = nn.Parameter(moved, requires_grad=False) if isinstance(x, nn.Parameter) else moved
                tensors[name] = made.get(id(x))
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
