"""An EAGLE-3 head with fewer operations: projections of one input as one linear."""

from __future__ import annotations

from torch import Tensor, nn

from ..model.layers import together
from .eagle3 import Eagle3Head
from .layers import Attention, Rope, rotate


class JoinedAttention(nn.Module):
    """An `Attention` whose queries, keys and values come out of one linear. Only as `Eagle3Head` uses it: all three of
    the same rows."""

    def __init__(self, stock: Attention) -> None:
        super().__init__()
        projections = [stock.q_proj, stock.k_proj, stock.v_proj]
        self.dim = stock.dim
        self.num_heads, self.num_kv_heads = (linear.out_features // stock.dim for linear in projections[:2])
        self.qkv, self.o_proj = together(projections), stock.o_proj
        self.q_norm, self.k_norm = stock.q_norm, stock.k_norm

    def projected(self, x: Tensor) -> Tensor:
        """See `Attention`."""
        return self.qkv(x)

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """See `Attention`."""
        heads = self.qkv(x).view(*x.shape[:2], -1, self.dim)
        query, key, value = heads.split([self.num_heads, self.num_kv_heads, self.num_kv_heads], 2)
        return rotate(self.q_norm(query), rope), rotate(self.k_norm(key), rope), value.transpose(1, 2)

    def out(self, attended: Tensor) -> Tensor:
        """See `Attention`."""
        return self.o_proj(attended.transpose(1, 2).flatten(2))


def join_projections(head: Eagle3Head) -> None:
    """Make one linear of every layer's q, k and v, in place. To be done before linears are packed."""
    for layer in head.layers:
        layer.self_attn = JoinedAttention(layer.self_attn)  # type: ignore[arg-type]
