"""Layers with fewer operations than transformers' and the same results: beyond its weights, a narrow step mostly spends
its time on starting small operations.

Projections of the same input become one linear (q, k, v; gate, up; those of a linear layer), a norm of eight operations
becomes one or three, and queries and keys are turned together. Only proven equals are replaced: attention of the
classes listed here, norms and MLPs that agree with their replacement on random rows but for rounding. Everything else
stays as it is."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import NAME
from .delta_rule import DeltaLayer, in_lanes, of_four, of_one
from .modules import replace_modules
from .step import StepState

# transformers' classes that do just this: project, norm queries and keys (some), turn halves of heads, attend, project.
ATTENTION = {"Gemma3Attention", "LlamaAttention", "MistralAttention", "Qwen2Attention", "Qwen3Attention"}
# Classes that also gate the attended values, by gates projected with the queries, and may turn a part of each head.
GATED = {"Qwen3_5Attention"}
WINDOW_IN_CONFIG = {"MistralAttention"}
MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}
ROWS = 3
# Relative to a row's largest value: a few roundings.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def fuse_layers(model: nn.Module, by_layer_norm: bool) -> None:
    """Replace norms and MLPs below `model` by their equals, in place. Call it before linears are packed. by_layer_norm:
    an RMSNorm becomes a layer norm over [x, -x], as torch has no other kernel on the CPU."""
    replace_modules(model, lambda child: fused_norm(child, by_layer_norm) or fused_mlp(child))


def join_projections(model: nn.Module) -> None:
    """Join the four projections of every linear layer below `model` into one linear, in place. Call it before linears
    are packed."""
    for layer in model.modules():
        if isinstance(layer, DeltaLayer) and layer.project is of_four:
            parts = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
            linears: list[Any] = [getattr(layer, part) for part in parts]
            if _can_join(linears):
                layer.in_proj, layer.project = together(linears), of_one
                for part in parts:
                    delattr(layer, part)


def is_stock(module: nn.Module) -> bool:
    """Whether the module does what its class says: its `forward` is neither replaced nor hooked."""
    return "forward" not in vars(module) and not module._forward_hooks and not module._forward_pre_hooks


def root_mean_square(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, by_layer_norm: bool) -> Tensor:
    """x / sqrt(mean(x ** 2) + eps) * weight over the last dimension d, float32 inside.

    by_layer_norm: weight and bias (zeros) are [2 d], else [d] and None. On the CPU torch has a kernel for layer norm
    only; and [x, -x] has mean 0 and the variance mean(x ** 2)."""
    dim = x.shape[-1]
    if by_layer_norm:
        return torch.layer_norm(torch.cat((x, -x), -1), (2 * dim,), weight, bias, eps)[..., :dim]
    if weight is None or weight.dtype == x.dtype:
        return torch.rms_norm(x, (dim,), weight, eps)
    return torch.rms_norm(x.float(), (dim,), weight, eps).to(x.dtype)


class FusedNorm(nn.Module):
    """An RMSNorm that multiplies by `scale` [dim], computed from `weight`."""

    def __init__(self, weight: Tensor, scale: Tensor, eps: float, by_layer_norm: bool) -> None:
        super().__init__()
        self.eps, self.by_layer_norm = eps, by_layer_norm
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Buffer(scale, persistent=False)
        self.factors = nn.Buffer(torch.cat((scale, scale)) if by_layer_norm else scale, persistent=False)
        self.zeros = nn.Buffer(torch.zeros_like(self.factors), persistent=False) if by_layer_norm else None

    def forward(self, x: Tensor) -> Tensor:
        return root_mean_square(x, self.factors, self.zeros, self.eps, self.by_layer_norm).contiguous()


@torch.inference_mode()
def fused_norm(norm: Any, by_layer_norm: bool) -> FusedNorm | None:
    """An RMSNorm that multiplies by its weight, or its weight plus one (Gemma); None for anything else."""
    weights = dict(norm.named_parameters())
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if (
        not type(norm).__name__.endswith("RMSNorm")
        or not is_stock(norm)
        or set(weights) != {"weight"}
        or weights["weight"].ndim != 1
        or not isinstance(eps, float)
    ):
        return None
    weight, precise = weights["weight"].detach(), copy.deepcopy(norm).float()
    rows = _rows(weight, len(weight))
    for scale in (weight, 1.0 + weight.float()):  # rounding large weights to 16 bits hides which of the two it is
        same = FusedNorm(weight.float(), scale.float(), eps, by_layer_norm)
        fused = FusedNorm(weight, scale, eps, by_layer_norm)
        if _agree(norm, fused, rows) and all(_agree(precise, same, rows.float() * size) for size in (1.0, eps**0.5)):
            return fused
    return None


class FusedMLP(nn.Module):
    """down(act(gate(x)) * up(x)), gate and up in one linear."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.gate_up = together([mlp.gate_proj, mlp.up_proj])
        self.down_proj, self.act_fn = mlp.down_proj, mlp.act_fn

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down_proj(self.act_fn(gate) * up)


@torch.inference_mode()
def fused_mlp(mlp: Any) -> FusedMLP | None:
    """A gated MLP; None for anything else."""
    if (
        set(dict(mlp.named_children())) != MLP
        or not is_stock(mlp)
        or not _can_join([mlp.gate_proj, mlp.up_proj])
        or mlp.gate_proj.out_features != mlp.up_proj.out_features
    ):
        return None
    fused = FusedMLP(mlp)
    return fused if _agree(mlp, fused, _rows(mlp.gate_proj.weight, mlp.gate_proj.in_features)) else None


class FusedAttention(nn.Module):
    """Attention of one of the classes in ATTENTION. Queries and keys are heads of one tensor until they attend."""

    scales: Tensor | None
    query_parts = 1  # heads of `qkv` per query

    def __init__(self, stock: Any, norms: Sequence[FusedNorm]) -> None:
        super().__init__()
        projections = [stock.q_proj, stock.k_proj, stock.v_proj]
        self.qkv, self.o_proj = together(projections), stock.o_proj
        self.layer_idx, self.head_dim, self.scaling = stock.layer_idx, stock.head_dim, stock.scaling
        has_window = stock.config if type(stock).__name__ in WINDOW_IN_CONFIG else stock
        self.sliding_window = getattr(has_window, "sliding_window", None)
        counts = [
            linear.out_features // (stock.head_dim * parts)
            for linear, parts in zip(projections, (self.query_parts, 1, 1), strict=True)
        ]
        self.num_heads, self.num_turned = counts[0], counts[0] + counts[1]
        self.eps, self.by_layer_norm = (norms[0].eps, norms[0].by_layer_norm) if norms else (0.0, False)
        self.norms = nn.ModuleList(norms)
        scales = [norm.scale.expand(num, -1) for norm, num in zip(norms, counts, strict=False)]
        self.register_buffer("scales", torch.cat(scales) if scales else None, persistent=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, state: StepState) -> Tensor:
        """x [1, n, hidden] -> [1, n, hidden]. cos, sin [1, n, 1, head_dim]; the first half of the sines is negated."""
        heads = self.qkv(x).view(1, x.shape[1], -1, self.head_dim)
        turned = heads[:, :, : self.num_turned]
        if self.scales is not None:
            turned = (root_mean_square(turned, None, None, self.eps, self.by_layer_norm) * self.scales).to(x.dtype)
        turned = turned * cos + turned.roll(self.head_dim // 2, -1) * sin
        return self.o_proj(self._attended(turned, heads[:, :, self.num_turned :], state))

    def _attended(self, turned: Tensor, values: Tensor, state: StepState) -> Tensor:
        """Queries and keys, turned, and values [1, n, heads, head_dim] -> [1, n, query heads * head_dim]."""
        turned = turned.transpose(1, 2)
        query, key, value = turned[:, : self.num_heads], turned[:, self.num_heads :], values.transpose(1, 2)
        out, _ = ALL_ATTENTION_FUNCTIONS[NAME](
            self, query, key, value, None, scaling=self.scaling, sliding_window=self.sliding_window, state=state
        )
        return out.flatten(2)


class GatedAttention(FusedAttention):
    """Attention of one of the classes in GATED, with norms of queries and keys. `qkv` returns queries and gates
    alternating, then keys and values."""

    query_parts = 2

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, state: StepState) -> Tensor:
        """x [1, n, hidden] -> [1, n, hidden]. cos, sin [1, n, 1, turned values of a head]; the first half of the sines
        is negated."""
        num_queries, num_kv, num_values = 2 * self.num_heads, self.num_turned - self.num_heads, cos.shape[-1]
        assert self.scales is not None
        heads = self.qkv(x).view(1, x.shape[1], -1, self.head_dim)
        both = torch.cat((heads[:, :, :num_queries:2], heads[:, :, num_queries:-num_kv]), 2)
        normed = root_mean_square(both, None, None, self.eps, self.by_layer_norm)
        turned = (normed * self.scales).to(x.dtype)
        first = turned[..., :num_values]
        across = first.roll(num_values // 2, -1) * sin
        first.mul_(cos).add_(across)
        out = self._attended(turned, heads[:, :, -num_kv:], state)
        return self.o_proj(out * in_lanes(torch.sigmoid, heads[0, :, 1:num_queries:2].flatten(1)))


@torch.inference_mode()
def fused_attention(attention: Any, by_layer_norm: bool) -> FusedAttention | None:
    """One of ATTENTION with known norms or none, or one of GATED; None for anything else."""
    name = type(attention).__name__
    if (
        name not in ATTENTION | GATED
        or not is_stock(attention)
        or not _can_join([attention.q_proj, attention.k_proj, attention.v_proj])
    ):
        return None
    norms = [
        fused_norm(child, by_layer_norm) for name, child in attention.named_children() if name in ("q_norm", "k_norm")
    ]
    known = [norm for norm in norms if norm is not None and len(norm.scale) == attention.head_dim]
    if len(known) != len(norms) or len({norm.eps for norm in known}) > 1:
        return None
    if name in ATTENTION:
        return FusedAttention(attention, known)
    has_gates = known and attention.q_proj.out_features == 2 * attention.o_proj.in_features
    return GatedAttention(attention, known) if has_gates else None


def _can_join(linears: Sequence[nn.Module]) -> bool:
    """Whether these are plain linears that can be joined: same kind and device, all with a bias or none."""
    if any(type(linear) is not nn.Linear or not is_stock(linear) for linear in linears):
        return False
    return len({(x.in_features, x.bias is None, x.weight.dtype, x.weight.device) for x in linears}) == 1


def together(linears: Sequence[nn.Linear]) -> nn.Linear:
    """One linear with their outputs side by side. Their weights become views of its own, so that memory is needed for
    one linear at a time."""
    first, sizes = linears[0], [linear.out_features for linear in linears]
    joined = nn.Linear(first.in_features, sum(sizes), first.bias is not None, device="meta")
    for name in ("weight", "bias") if first.bias is not None else ("weight",):
        whole = torch.cat([getattr(linear, name).detach() for linear in linears])
        setattr(joined, name, nn.Parameter(whole, requires_grad=False))
        for linear, part in zip(linears, whole.split(sizes), strict=True):
            setattr(linear, name, nn.Parameter(part, requires_grad=False))
    return joined


def _rows(like: Tensor, dim: int) -> Tensor:
    return torch.randn(1, ROWS, dim, generator=torch.Generator().manual_seed(0)).to(like.device, like.dtype)


def _agree(module: nn.Module, fused: nn.Module, rows: Tensor) -> bool:
    """Whether both return the same rows but for rounding."""
    expected, actual = module(rows), fused(rows)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    error, size = (expected.float() - actual.float()).abs().amax(-1), expected.float().abs().amax(-1)
    return bool((error <= TOLERANCE.get(rows.dtype, 0.0) * size).all())
