"""A linear for few rows: its weights are read once, and a row's bits are its own.

Every output is one fixed order of sums (`linear_kernel.py`), for any number of rows; missing rows are zeros. So a
linear has one configuration (`tiles.py`) for all numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from .available import DTYPES
from .linear_kernel import linear_rows
from .runtime import MOST_ROWS
from .tiles import num_sms, tile_of

ACTIVATIONS = ("silu", "gelu_tanh")
INPUTS_MULTIPLE = 16
ALIGNMENT = 16  # Bytes. Triton compiles a separate binary for pointers that are not a multiple of it.


@dataclass(frozen=True, slots=True)
class Added:
    """A residual stream after an addition, with what the next linear needs to norm it: rows, scaled [m, n]; squares
    [at least m, parts] float32, whose rows add up to the sums of squares of `rows` (rows beyond m are undefined)."""

    rows: Tensor
    scaled: Tensor
    squares: Tensor

    def row(self, at: Tensor) -> Added:
        """That of row `at` [1] alone."""
        return Added(*(part.index_select(0, at) for part in (self.rows, self.scaled, self.squares)))


class GpuLinear(nn.Linear):
    """Shares weight [N, K] and bias of `linear`; with act "silu" or "gelu_tanh" it is a gate and a value side by side
    (N = 2 I), and returns act(gate) * value. All sums are float32, and rounded once.

    Every input must be contiguous, in the weight's dtype and aligned to 16 bytes. `reason_against` must accept
    the linear."""

    def __init__(self, linear: nn.Linear, act: str | None = None) -> None:
        nn.Module.__init__(self)
        weight = linear.weight
        assert reason_against(linear) is None and (act is None or (act in ACTIVATIONS and len(weight) % 2 == 0))
        self.weight, self.bias, self.act = weight, linear.bias, act
        self.in_features = weight.shape[1]
        self.out_features = weight.shape[0] if act is None else weight.shape[0] // 2
        # For all numbers of rows: bits depend on it.
        self.config = tile_of(self.out_features, self.in_features, act is not None, num_sms(weight.device))

    @property
    def shape(self) -> str:
        """In words: linears of one shape have one configuration."""
        gated, bias = "gated " * (self.act is not None), " with bias" * (self.bias is not None)
        dtype = str(self.weight.dtype).removeprefix("torch.")
        return f"{gated}{self.out_features} x {self.in_features}{bias} in {dtype}"

    def plain(self) -> nn.Linear:
        """The linear that this was made from, over the same weight. Not for one with an activation."""
        assert self.act is None
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        linear.weight, linear.bias = self.weight, self.bias
        return linear

    def forward(self, x: Tensor) -> Tensor:
        """x [..., K] -> [..., N or I]. More than 16 rows, a prefill, are torch's."""
        rows = x.reshape(-1, self.in_features)
        if not 0 < len(rows) <= MOST_ROWS:
            return self._by_torch(x)
        out = rows.new_empty(len(rows), self.out_features)
        self._launch(rows, out)
        return out.view(*x.shape[:-1], self.out_features)

    def add_to(self, x: Tensor, residual: Tensor, scale: Tensor, out: Tensor | None = None) -> Added:
        """residual + linear(x), both rounded as in the stock model; and those rows times `scale`, the next norm's. x
        [m, K], residual [m, N], scale [N] float32; at most 16 rows. out: where the sums go; not `residual`. Not for
        one with an activation."""
        assert self.act is None
        assert residual.shape == (len(x), self.out_features) and residual.dtype == x.dtype and _is_plain(residual)
        assert scale.shape == (self.out_features,) and scale.dtype == torch.float32 and _is_plain(scale)
        rows, scaled = torch.empty_like(residual) if out is None else out, torch.empty_like(residual)
        assert rows.shape == residual.shape and rows.dtype == residual.dtype and _is_plain(rows)
        num_programs = self.config.num_programs(self.out_features)
        squares = torch.empty(MOST_ROWS, num_programs, dtype=torch.float32, device=x.device)
        self._launch(x, rows, residual=residual, scale=scale, scaled=scaled, squares=squares)
        return Added(rows, scaled, squares)

    def normed(self, added: Added, eps: float) -> Tensor:
        """linear(RMSNorm(added.rows) * scale) [m, N or I], the norm's factor of a row multiplied into its products. At
        most 16 rows."""
        assert len(added.squares) >= len(added.scaled) and _is_plain(added.squares)
        out = added.scaled.new_empty(len(added.scaled), self.out_features)
        self._launch(added.scaled, out, parts=added.squares, eps=eps)
        return out

    def _launch(self, x: Tensor, out: Tensor, parts: Tensor | None = None, eps: float = 0.0, **added: Tensor) -> None:
        assert x.shape[1] == self.in_features and 0 < len(x) <= MOST_ROWS and x.dtype == self.weight.dtype
        assert _is_plain(x) and _is_plain(self.weight) and (self.bias is None or _is_plain(self.bias))
        config, num_parts = self.config, 0 if parts is None else parts.shape[1]
        linear_rows[(config.num_programs(self.out_features),)](
            x=x, weight=self.weight, bias=self.bias, out=out,
            **(dict.fromkeys(("residual", "scale", "scaled", "squares")) | added), parts=parts,
            num_rows=len(x), eps=eps, NUM=self.out_features, K=self.in_features, ACT=self.act, PARTS=num_parts,
            PARTS_BLOCK=triton.next_power_of_2(num_parts) if num_parts else 0, BLOCK_N=config.block_n,
            BLOCK_K=config.block_k, STAGES=config.num_stages, num_warps=config.num_warps,
        )  # fmt: skip

    def _by_torch(self, x: Tensor) -> Tensor:
        products = F.linear(x, self.weight, self.bias)
        if self.act is None:
            return products
        gate, up = products.chunk(2, -1)
        return (F.silu(gate) if self.act == "silu" else F.gelu(gate, approximate="tanh")) * up


def reason_against(linear: nn.Linear) -> str | None:
    """Why this linear cannot be a GpuLinear; None if it can."""
    weight = linear.weight
    if weight.dtype not in DTYPES or weight.shape[1] % INPUTS_MULTIPLE or not _is_plain(weight):
        return (
            f"a linear of {' x '.join(map(str, weight.shape))} in {weight.dtype}: it must be contiguous, aligned, "
            f"bfloat16 or float16, and its inputs a multiple of {INPUTS_MULTIPLE}"
        )
    return None


def _is_plain(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0
