"""A linear whose weights are rounded to 8 bits with a scale for each output (`bytes.h`): half of bfloat16's bytes to read. For draft heads, whose rounding costs no token."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from .build import library
from .linear import BLOCK, LANES, LinearArguments, NativeLinear

MOST_INPUTS = 2**16
"""Of a row, so that sums of products of bytes fit 32 bits."""


class MatrixArguments(ctypes.Structure):
    """`Matrix` of bytes.h."""

    _fields_ = (("linear", LinearArguments), ("scales", ctypes.c_void_p), ("sums", ctypes.c_void_p))


class ByteLinear(nn.Module):
    """In the place of an nn.Linear that `NativeLinear` could take too, with a number of inputs that `fits`; `act` as there. Rows are bfloat16, of 16 bits below their
    largest number inside."""

    weights: Tensor
    scales: Tensor
    sums: Tensor

    def __init__(self, linear: nn.Linear, act: int | None = None) -> None:
        super().__init__()
        num, k = linear.weight.shape
        assert fits(k) and not (act is not None and num % BLOCK)
        self.in_features, self.out_features, self.act = k, num if act is None else num // 2, act
        kernels, weight, places = library(), linear.weight.detach().contiguous(), -(-num // BLOCK) * BLOCK
        self.register_buffer("weights", torch.empty(places // BLOCK, k, BLOCK, dtype=torch.int8), persistent=False)
        self.register_buffer("scales", torch.empty(places), persistent=False)
        self.register_buffer("sums", torch.empty(places, dtype=torch.int32), persistent=False)
        pointers = (ctypes.c_void_p(t.data_ptr()) for t in (weight, self.weights, self.scales, self.sums))
        kernels.photofinish_pack_bytes(*pointers, ctypes.c_int64(num), ctypes.c_int64(k), ctypes.c_int(act is not None), ctypes.c_int(torch.get_num_threads()))
        self.register_buffer("biases", None if linear.bias is None else biases_in_blocks(linear.bias, act is not None), persistent=False)
        biases: Any = self.biases
        plain = LinearArguments(self.weights.data_ptr(), None if biases is None else biases.data_ptr(), num, k)
        self.arguments = MatrixArguments(plain, self.scales.data_ptr(), self.sums.data_ptr())
        self._multiply, self._room = kernels.photofinish_bytes, kernels.photofinish_bytes_room
        self._room.restype = ctypes.c_int64

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        assert x.dtype == torch.bfloat16 and x.shape[-1] == self.in_features, f"bfloat16 rows of {self.in_features} are due, not {x.dtype} of {x.shape[-1]}"
        x = x.contiguous()
        out = torch.empty(*x.shape[:-1], self.out_features, dtype=x.dtype)
        num_rows, threads = ctypes.c_int64(x.numel() // self.in_features), ctypes.c_int(torch.get_num_threads())
        room = torch.empty(self._room(num_rows, ctypes.c_int64(self.in_features), threads), dtype=torch.uint8)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, out, room)]
        self._multiply(ctypes.byref(self.arguments), ctypes.c_int(-1 if self.act is None else self.act), *pointers[:2], num_rows, threads, pointers[2])
        return out


def biases_in_blocks(bias: Tensor, gated: bool) -> Tensor:
    """float32, in the order of blocks of weights."""
    wide = bias.detach().float()
    if gated:
        gates, values = wide.view(2, -1, LANES)
        wide = torch.stack((gates, values), 1).flatten()
    return nn.functional.pad(wide, (0, -len(wide) % BLOCK))


def fits(num_inputs: int) -> bool:
    """Whether rows of so many numbers can be."""
    return num_inputs % LANES == 0 and num_inputs <= MOST_INPUTS


def matrix_of(linear: Any) -> MatrixArguments | None:
    """What a call in C takes for a linear; None where it is of no kind that it could."""
    if isinstance(linear, ByteLinear):
        return linear.arguments
    return MatrixArguments(linear.arguments, None, None) if isinstance(linear, NativeLinear) else None
