"""A linear of bfloat16 weights for few rows, as fast as reading the weights once (`linear.h`)."""

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...layers.modules import StepLinear
from .build import INT, NUMBER, POINTER, NoKernels, fields, library
from .tensors import address

BLOCK, LANES = 32, 16
MOST_INPUTS = 2**16  # the longest row; some processors' kernels keep one on the stack


class LinearArguments(ctypes.Structure):
    """`Linear` of block.h."""

    _fields_ = (*fields(POINTER, "weights", "bias"), *fields(NUMBER, "num", "k", "in_bytes"))


def reason_against(linear: Any) -> str | None:
    """Why this linear cannot be a NativeLinear; None if it can."""
    if type(linear) is not nn.Linear:
        return f"a {type(linear).__name__} is no plain linear"
    weight = linear.weight
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return f"its weights are {weight.dtype} on {weight.device.type}, not bfloat16 on the CPU"
    if weight.shape[1] % 2:
        return f"it has an odd number of inputs, {weight.shape[1]}"
    if not 0 < weight.shape[1] <= MOST_INPUTS:
        return f"it has {weight.shape[1]} inputs, not from 2 to {MOST_INPUTS}"
    try:
        library()
    except NoKernels as why:
        return str(why)
    return None


class NativeLinear(StepLinear):
    """See StepLinear: weights [num, k] in the blocks of block.h. With an `act` of block.h the first half of the
    outputs are gates, the other half values, and the result is act(gate) * value. Raises ValueError for rows of
    another dtype or size."""

    in_bytes, kept_as, packs = False, torch.bfloat16, "photofinish_pack"

    def __init__(self, linear: nn.Linear, act: int | None = None) -> None:
        super().__init__(linear)
        num, k = linear.weight.shape
        assert k % 2 == 0 and not (act is not None and num % BLOCK)
        self.out_features, self.act = num if act is None else num // 2, act
        kernels, weight = library(), linear.weight.detach().contiguous()
        blocks = torch.empty(-(-num // BLOCK), BLOCK * self._size_of_an_output(), dtype=self.kept_as)
        sizes = NUMBER(num), NUMBER(k), INT(act is not None), INT(torch.get_num_threads())
        weight_at = POINTER(address(weight, torch.bfloat16, None, None))
        getattr(kernels, self.packs)(weight_at, POINTER(blocks.data_ptr()), *sizes)
        self.weights = nn.Buffer(blocks, persistent=False)
        self.arguments = LinearArguments(self.weights.data_ptr(), None, num, k, self.in_bytes)
        if linear.bias is not None:
            self.biases = nn.Buffer(self._in_blocks(linear.bias.detach().float()), persistent=False)
            self.arguments.bias = self.biases.data_ptr()
        self._linear, self._gated = kernels.photofinish_linear, kernels.photofinish_gated
        self._self = ctypes.byref(self.arguments)

    def _size_of_an_output(self) -> int:
        """Numbers of `kept_as` that hold the weights of one output."""
        return self.in_features

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        x = x.contiguous()
        x_at = address(x, torch.bfloat16, *x.shape[:-1], self.in_features)
        out = torch.empty(*x.shape[:-1], self.out_features, dtype=x.dtype)
        num_rows, threads = NUMBER(x.numel() // self.in_features), INT(torch.get_num_threads())
        rows = self._self, POINTER(x_at), POINTER(out.data_ptr()), num_rows
        if self.act is None:
            self._linear(*rows, threads)
        else:
            self._gated(*rows, INT(self.act), threads)
        return out

    def read(self) -> Tensor:
        """The weights that a step must read, without the padding of the last block."""
        return self.weights.flatten()[: self.arguments.num * self._size_of_an_output()]

    def _in_blocks(self, bias: Tensor) -> Tensor:
        if self.act is not None:
            gates, values = bias.view(2, -1, LANES)
            bias = torch.stack((gates, values), 1).flatten()
        return F.pad(bias, (0, -len(bias) % BLOCK))
