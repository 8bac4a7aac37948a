"""Linear attention with a gated delta rule (Yang et al. 2024, arXiv:2412.06464), as in most layers of the Qwen3-Next
and Qwen3.5 hybrids: an exact fixed step, and rollback by moving the target's pointer.

Such a layer remembers by one matrix S per head. With q, k, v from a short convolution and gates g < 0 and 0 < b < 1, a
token does

    S <- exp(g) S;   S <- S + k (b (v - S^T k))^T;   out = S^T q

so nothing can be masked: a rejected token has changed S. Each layer therefore keeps the states of the last positions in
a ring: the state after n tokens is at slot n mod R, and R is at least W + 1, so that a step of width W reads the
pointer's slot and writes the W slots after it. A rollback moves the pointer, as for keys and values; padding writes
slots that no pointer reaches before a real token overwrites them; a step repeated at the same pointer does the same
again; and before the first token the state is zero, whatever is in the ring. The convolution's last inputs have a ring
of their own.

Inside a step tokens go one by one, each with operations of the same shapes whatever the width. A prefill (no logits)
takes CHUNK tokens at once: all lanes of a race prefill the same tokens in the same chunks, so they begin from the same
bits, and no step ever does that."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from ..core.errors import UnsupportedModel
from .delta_places import WINDOW, LinearShape, Places, Rows
from .modules import replace_modules
from .published import LINEAR
from .step import StepState

CHUNK = 64
# Functions such as exp are applied to rows of a multiple of this many numbers: a remainder that does not fill the CPU's
# vectors goes through another exp, with other bits, and which numbers those are would depend on the width.
LANES = 64
# mix_step(layer, rows, places, states, inputs): see `DeltaLayer.mix`.
MixStep = Callable[["DeltaLayer", Rows, "Places", Tensor, Tensor], Tensor]


def linear_shape_of(model: PreTrainedModel) -> LinearShape | None:
    """The shape of a model's linear layers, or None without any. Raises UnsupportedModel if one is not in KINDS, or if
    they differ."""
    types = getattr(model.config.get_text_config(), "layer_types", None) or ()
    wanted = {layer for layer, kind in enumerate(types) if kind == LINEAR}
    modules = {module.layer_idx: module for module in model.modules() if type(module).__name__ in KINDS}
    name = type(model).__name__
    if missing := wanted ^ modules.keys():
        raise UnsupportedModel(
            f"{name} has linear attention in layer {min(missing)} of a kind that this engine does not do; it does "
            f"{', '.join(sorted(KINDS))}"
        )
    if not wanted:
        return None
    layers = tuple(sorted(modules))
    shapes = {_shape_of(module, layers) for module in modules.values()}
    if len(shapes) > 1:
        raise UnsupportedModel(f"{name} has linear layers of {len(shapes)} shapes; this engine does one")
    return shapes.pop()


def _shape_of(stock: Any, layers: tuple[int, ...]) -> LinearShape:
    return LinearShape(
        layers, stock.num_k_heads, stock.num_v_heads, stock.head_k_dim, stock.head_v_dim, stock.conv_kernel_size
    )


def fix_linear_layers(model: PreTrainedModel) -> None:
    """Replace every linear layer by a DeltaLayer with the same weights, in place. Their projections stay modules, so
    that they can be packed."""
    replace_modules(model, lambda child: DeltaLayer(child) if type(child).__name__ in KINDS else None)


class DeltaLayer(nn.Module):
    """A linear layer on the engine's rings, with the projections, gates and norm of the transformers module it
    replaces."""

    in_proj: nn.Module  # all projections of the input in one, if `project` is of_one
    out_proj: nn.Module

    def __init__(self, stock: Any) -> None:
        super().__init__()
        if stock.conv1d.bias is not None:
            raise UnsupportedModel(
                f"{type(stock).__name__} has a bias in its convolution, which this engine does not do"
            )
        for name, child in stock.named_children():
            if isinstance(child, nn.Linear):
                self.add_module(name, child)
        self.norm, self.layer_idx, self.dt_bias = stock.norm, stock.layer_idx, stock.dt_bias
        self.activation: Callable[[Tensor], Tensor] = ACT2FN[stock.activation]
        self.shape = _shape_of(stock, (stock.layer_idx,))
        self.project: Callable[[DeltaLayer, Tensor], Rows] = KINDS[type(stock).__name__]
        self.mix_step: MixStep | None = None  # replaces `mix` in steps, if kernels can
        self.taps = nn.Buffer(stock.conv1d.weight.detach()[:, 0].float().T.contiguous(), persistent=False)
        self.rate = nn.Buffer(-stock.A_log.detach().float().exp(), persistent=False)

    def forward(self, hidden_states: Tensor, state: StepState | None = None, **unused: Any) -> Tensor:
        """hidden_states [1, n, hidden] -> the same."""
        if state is None or state.places is None:
            raise UnsupportedModel(f"layer {self.layer_idx} was not handed the engine's state")
        if state.seen is not None:
            state.seen[self.layer_idx] = WINDOW
        states, inputs = state.kv[self.layer_idx]
        return self.out_proj(self.mix(self.project(self, hidden_states), state.places, states, inputs)[None])

    def mix(self, rows: Rows, places: Places, states: Tensor, inputs: Tensor) -> Tensor:
        """rows: convolution inputs [n, conv_dim], z [n, value_heads * value_dim], b and a [n, value_heads]; rings as
        `ring_sizes` -> [n, value_heads * value_dim]."""
        mixed, z, b, a = rows
        if self.mix_step is not None and not places.chunked:
            return self.mix_step(self, rows, places, states, inputs)
        s = self.shape
        state, past = places.read(states, inputs)
        inputs.index_copy_(0, places.inputs, mixed[-len(places.inputs) :].view(-1, 1, 1, s.conv_dim))
        sizes = [2 * s.num_key_heads * s.key_dim, s.num_value_heads * s.value_dim]
        keys, values = self._convolve(mixed, past).float().split(sizes, dim=-1)
        q, k = self._normalized(keys).chunk(2, 1)
        q, v = q / s.key_dim**0.5, values.reshape(-1, s.num_value_heads, s.value_dim)
        b, g = self._gates(b, a)
        if places.chunked:
            out, last = delta_rule_in_chunks(q, k, v, b, g, state)
            states.index_copy_(0, places.next_states, last[None, None, None])
        else:
            out = _delta_rule(q, k, v, b, in_lanes(torch.exp, g), state, states, places.next_states)
        normed = self.norm(out.to(mixed.dtype).reshape(-1, s.value_dim), z.reshape(-1, s.value_dim))
        return normed.reshape(len(mixed), -1)

    def _convolve(self, mixed: Tensor, past: Tensor) -> Tensor:
        """Per position and channel the last `kernel` inputs under their taps, and the activation: [n, conv_dim]."""
        windows = torch.cat([past, mixed]).float().unfold(0, self.shape.kernel, 1)
        first, *others = (windows.permute(2, 0, 1) * self.taps[:, None]).unbind()
        return in_lanes(self.activation, sum(others, start=first).to(mixed.dtype))

    def _normalized(self, x: Tensor) -> Tensor:
        """Float32 [n, 2 * key_heads * key_dim] -> [n, 2 * value_heads, key_dim], of length 1, key heads repeated."""
        s = self.shape
        heads = x.reshape(-1, 2 * s.num_key_heads, s.key_dim)
        heads = heads * torch.rsqrt((heads * heads).sum(-1, keepdim=True) + 1e-6)
        return heads.repeat_interleave(s.num_value_heads // s.num_key_heads, dim=1)

    def _gates(self, b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """The write gate, from 0 to 1, and the logarithm of the decay, both [n, value_heads]."""
        kept = self.rate * in_lanes(F.softplus, a.float() + self.dt_bias)
        return in_lanes(torch.sigmoid, b).float(), kept


def in_lanes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of every number of x [n, any], LANES at a time."""
    size = x.shape[-1]
    return function(F.pad(x, (0, -size % LANES)).contiguous())[:, :size]


def _delta_rule(
    q: Tensor, k: Tensor, v: Tensor, b: Tensor, kept: Tensor, state: Tensor, states: Tensor, places: Tensor
) -> Tensor:
    """Token by token from `state` [heads, key_dim, value_dim]; the state after each goes into `states` at its place. q,
    k [n, heads, key_dim], v [n, heads, value_dim], b and kept [n, heads], all float32 -> [n, heads, value_dim]."""
    out, after = torch.empty_like(v), state.new_empty(len(v), *state.shape)
    by_token = (
        x.unbind()
        for x in (q[..., None], k[..., None], v[:, :, None], b[..., None, None], kept[..., None, None], after, out)
    )
    for q_i, k_i, v_i, b_i, kept_i, after_i, out_i in zip(*by_token, strict=True):
        state = state * kept_i
        recalled = (state * k_i).sum(1, keepdim=True)
        state = torch.add(state, k_i * ((v_i - recalled) * b_i), out=after_i)
        torch.sum(state * q_i, 1, out=out_i)
    states.index_copy_(0, places, after[:, None, None])
    return out


def delta_rule_in_chunks(q: Tensor, k: Tensor, v: Tensor, b: Tensor, g: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The same sums, CHUNK tokens at once: within a chunk, what token t writes is the solution of a triangular system,
    since it depends on what those before it wrote. Arguments like `_delta_rule`, with g [n, heads] = log(kept); returns
    the rows and the last state."""
    rows = []
    for start in range(0, len(v), CHUNK):
        part = slice(start, start + CHUNK)
        queries, keys, values = (x[part].transpose(0, 1) for x in (q, k, v))
        total, written = g[part].T.cumsum(-1), b[part].T[..., None]
        n = total.shape[-1]
        causal = torch.ones(n, n, dtype=torch.bool, device=v.device).tril()
        decay = (total[:, :, None] - total[:, None]).masked_fill(~causal, -torch.inf).exp()
        system = (written * decay * (keys @ keys.transpose(1, 2))).tril(-1)  # unit diagonal, not read
        fresh = torch.linalg.solve_triangular(
            system, written * (values - total[..., None].exp() * (keys @ state)), upper=False, unitriangular=True
        )
        rows.append(total[..., None].exp() * (queries @ state) + (decay * (queries @ keys.transpose(1, 2))) @ fresh)
        state = (
            total[:, -1, None, None].exp() * state
            + ((total[:, -1:] - total).exp()[..., None] * keys).transpose(1, 2) @ fresh
        )
    return torch.cat(rows, 1).transpose(0, 1), state


def of_four(layer: Any, x: Tensor) -> Rows:
    """Qwen3.5: one projection each. x [1, n, hidden]."""
    return layer.in_proj_qkv(x)[0], layer.in_proj_z(x)[0], layer.in_proj_b(x)[0], layer.in_proj_a(x)[0]


def of_one(layer: Any, x: Tensor) -> Rows:
    """The same four out of one linear (`layers.join_projections`). x [1, n, hidden]."""
    return layer.shape.parts_of(layer.in_proj(x)[0])


def _of_two(layer: Any, x: Tensor) -> Rows:
    """Qwen3-Next: two projections, whose columns are grouped by key head. x [1, n, hidden]."""
    s: LinearShape = layer.shape
    heads, group = s.num_key_heads, s.num_value_heads // s.num_key_heads
    sizes = [s.key_dim, s.key_dim, group * s.value_dim, group * s.value_dim]
    query, key, value, z = layer.in_proj_qkvz(x)[0].unflatten(-1, (heads, -1)).split(sizes, -1)
    b, a = layer.in_proj_ba(x)[0].unflatten(-1, (heads, -1)).split([group, group], -1)
    return torch.cat([y.flatten(1) for y in (query, key, value)], -1), z.flatten(1), b.flatten(1), a.flatten(1)


KINDS: dict[str, Callable[[Any, Tensor], Rows]] = {
    "Qwen3NextGatedDeltaNet": _of_two,
    "Qwen3_5GatedDeltaNet": of_four,
    "Qwen3_5MoeGatedDeltaNet": of_four,
}  # transformers' modules that a DeltaLayer replaces -> how they project
