"""Rows of draft heads (`heads/`) in seven launches a layer, on the kernels that also run a target's steps."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from ...layers.layers import FusedMLP, FusedNorm, together
from .attention import UNIT, attend
from .decoder import ACTIVATIONS, MOST_HEAD_DIM
from .linear import Added, GpuLinear, reason_against
from .qkv_rope_cache import place
from .rmsnorm import _root_mean_square, normed, warps_of
from .runtime import MOST_ROWS, stored


@triton.jit(do_not_specialize=["ids", "at"])
def _joined(
    embedding, ids, at, hidden, first, second, out, residual, eps, SIZE: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """A row: an embedding and a hidden state, each normed, side by side; the latter also by itself, if asked for."""
    row = tl.program_id(0)
    columns = tl.arange(0, PADDED)
    inside = columns < SIZE
    index = row.to(tl.int64)
    if at is not None:
        index = tl.load(at + row) + 1
    token = tl.load(ids + index)
    embedded = tl.load(embedding + token * SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    embedded = _root_mean_square(embedded, eps, SIZE) * tl.load(first + columns, mask=inside, other=0.0)
    state = tl.load(hidden + row * SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    state = stored(_root_mean_square(state, eps, SIZE) * tl.load(second + columns, mask=inside, other=0.0), out)
    tl.store(out + 2 * row * SIZE + columns, stored(embedded, out), mask=inside)
    tl.store(out + (2 * row + 1) * SIZE + columns, state, mask=inside)
    if residual is not None:
        tl.store(residual + row * SIZE + columns, state, mask=inside)


class HeadLayer:
    """A layer of a head, over its weights. number: its place in the head; window, causal, from_row: what its rows
    see, as for `attend`."""

    def __init__(self, layer: Any, number: int, window: int | None, causal: bool, from_row: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.number, self.window, self.causal, self.from_row = number, window, causal, from_row
        self.qkv, self.o_proj, self.down = map(GpuLinear, (attention.qkv, attention.o_proj, mlp.down_proj))
        self.kv = None if attention.kv_proj is None else GpuLinear(attention.kv_proj)
        self.gate_up = GpuLinear(mlp.gate_up, ACTIVATIONS[type(mlp.act_fn).__name__])
        self.before, self.inner = layer.input_layernorm.scale.float(), layer.post_attention_layernorm.scale.float()
        self.num_heads, num_keys, _ = attention._counts
        self.scales: Tensor | None = None
        if not isinstance(attention.q_norm, nn.Identity):
            norms = ((attention.q_norm, self.num_heads), (attention.k_norm, num_keys))
            self.scales = torch.cat([norm.scale.float().expand(num, -1) for norm, num in norms])


class GpuHead:
    """What both kinds share. Rows are at consecutive positions at [n], int64."""

    def __init__(self, head: Any, buffers: Any, layers: list[HeadLayer]) -> None:
        self.head, self.buffers, self.eps = head, buffers, head.norm.eps
        self._layers, self._fc, self._output = layers, GpuLinear(head.fc), GpuLinear(head.output)
        self._scale = head.norm.scale.float()
        self._after = [*(layer.before for layer in layers[1:]), self._scale]
        self._cos, self._sin = buffers.cos, buffers.sin.clone()
        self._sin[:, : self._sin.shape[1] // 2].neg_()  # as `place` wants it

    def _place(self, layer: HeadLayer, projected: Tensor, at: Tensor, num_heads: int) -> Tensor:
        scales = None if layer.scales is None else layer.scales[layer.num_heads - num_heads :]
        keys, values = self.buffers.keys[layer.number], self.buffers.values[layer.number]
        return place(projected, self._cos, self._sin, scales, self.eps, keys, values, at, num_heads, table=True)

    def _through(self, projected: Tensor, x: Tensor, at: Tensor, out: Tensor | None = None) -> Added:
        """The rows after all layers, to be normed, in `out` if given. projected: by the first layer's `qkv`; x: the
        residual [n, hidden]."""
        added: Added | None = None
        for layer, scale in zip(self._layers, self._after, strict=True):
            if added is not None:
                x, projected = added.rows, layer.qkv.normed(added, self.eps)
            query = self._place(layer, projected, at, layer.num_heads)
            keys, values = self.buffers.keys[layer.number], self.buffers.values[layer.number]
            scaling, sees = query.shape[-1] ** -0.5, (None, None, layer.causal, layer.from_row)
            attended = attend(query, keys, values, at, layer.window, scaling, *sees)
            mixed = layer.o_proj.add_to(attended, x, layer.inner)
            added = layer.down.add_to(layer.gate_up.normed(mixed, self.eps), mixed.rows, scale, out)
        assert added is not None
        return added

    def _logits(self, added: Added) -> Tensor:
        return self.head.capped(self._output.normed(added, self.eps))


class GpuEagle3(GpuHead):
    """An EAGLE-3 head: see `drafters.eagle3.Eagle3Drafter`. `fed` [1, hidden]: what a chain's next row follows."""

    def __init__(self, head: Any, buffers: Any) -> None:
        windows = head.spec.windows
        layers = [HeadLayer(layer, i, windows[i], True, True) for i, layer in enumerate(head.layers)]
        super().__init__(head, buffers, layers)
        self._state_scale = head.layers[0].hidden_norm.scale.float()

    def catch_up(self, at: Tensor, last: Tensor, fed: Tensor) -> Tensor:
        """Fill the cache from the buffers; the logits [words] of row `last` [1]."""
        states = self._fc(self.head.normed(self.buffers.hidden.index_select(0, at)))
        added = self._follow(self.buffers.token_ids, at, states, at).row(last)
        if not self.head.spec.norm_output:
            fed.copy_(added.rows)
        return self._end(added, fed)

    def chain(self, token: Tensor, fed: Tensor, at: Tensor) -> Tensor:
        """The logits [words] of a row that follows `fed` and `token` [1]."""
        out = None if self.head.spec.norm_output else fed
        return self._end(self._follow(token, None, fed, at, out), fed)

    def _follow(
        self, ids: Tensor, before: Tensor | None, states: Tensor, at: Tensor, out: Tensor | None = None
    ) -> Added:
        """Rows of states [n, hidden] and the next tokens: `ids`, in order or after the positions `before`."""
        first, (num, size) = self._layers[0], states.shape
        joined = states.new_empty(num, 2 * size)
        residual = torch.empty_like(states) if self.head.spec.norm_before_residual else None
        padded = triton.next_power_of_2(size)
        _joined[(num,)](
            self.head.embedding, ids, before, states, first.before, self._state_scale, joined, residual, self.eps,
            SIZE=size, PADDED=padded, num_warps=warps_of(padded),
        )  # fmt: skip
        return self._through(first.qkv(joined), states if residual is None else residual, at, out)

    def _end(self, added: Added, fed: Tensor) -> Tensor:
        if not self.head.spec.norm_output:
            return self._logits(added)[0]
        return self.head.capped(self._output(normed(added.rows, self._scale, self.eps, fed)))[0]


class GpuDFlash(GpuHead):
    """A DFlash head: see `drafters.dflash.DFlashDrafter`."""

    def __init__(self, head: Any, buffers: Any) -> None:
        spec, layers = head.spec, []
        for i, (layer, window, causal) in enumerate(zip(head.layers, spec.windows, spec.causal, strict=True)):
            from_row = window is None or not spec.window_from_block
            # one counted from the block leaves out the block's first column
            layers.append(HeadLayer(layer, i, window if from_row else window + 1, causal, from_row))
        super().__init__(head, buffers, layers)
        self._context_scale = head.hidden_norm.scale.float()

    def take(self, at: Tensor) -> None:
        """Fill the cache's context from the buffers."""
        states = self._fc(self.buffers.hidden.index_select(0, at))
        fused = normed(states, self._context_scale, self.eps)
        for layer in self._layers:
            assert layer.kv is not None
            self._place(layer, layer.kv(fused), at, 0)

    def block(self, ids: Tensor, at: Tensor) -> Tensor:
        """The logits [n, words] of a block of these tokens [n]."""
        x = self.head.embed(ids)
        return self._logits(self._through(self._layers[0].qkv(normed(x, self._layers[0].before, self.eps)), x, at))


def join_block(head: Any) -> None:
    """Let the block of a DFlash head have one projection: its context's is then a part of it. Before any drafter has
    the head, whose graphs keep where its weights are."""
    for layer in head.layers:
        if (attention := layer.self_attn).qkv is None:
            attention.qkv = together([attention.q_proj, attention.kv_proj])
            del attention.q_proj


def rows_of(head: Any, buffers: Any, num_rows: int) -> GpuEagle3 | GpuDFlash | str:
    """The rows of a head on the kernels, up to `num_rows` at once, over a drafter's HeadBuffers; or why not."""
    return _reason_against(head, num_rows) or (GpuEagle3 if head.spec.kind == "eagle3" else GpuDFlash)(head, buffers)


def _reason_against(head: Any, num_rows: int) -> str:
    """Why not; "" if it fits. Biases, windows, any vocabulary and several layers do."""
    if num_rows > MOST_ROWS:
        return f"it takes {num_rows} rows at once, more than {MOST_ROWS}"
    spec, linears = head.spec, [head.fc, head.output]
    norms = [module for name, module in head.named_modules() if name.endswith("norm")]
    if not all(isinstance(norm, (FusedNorm, nn.Identity, nn.ModuleList)) for norm in norms):
        return "one of its norms is not as usual"
    for layer in head.layers:
        if not isinstance(layer.mlp, FusedMLP) or type(layer.mlp.act_fn).__name__ not in ACTIVATIONS:
            return f"its activation is {spec.layers.hidden_act}"
        linears += [layer.self_attn.qkv, layer.self_attn.o_proj, layer.mlp.gate_up, layer.mlp.down_proj]
    if (dim := spec.layers.head_dim) > MOST_HEAD_DIM or dim % UNIT.value:
        return f"its attention heads have {dim} numbers, not a multiple of {UNIT.value} up to {MOST_HEAD_DIM}"
    for linear in linears:
        if type(linear) not in (nn.Linear, GpuLinear):
            return f"a {type(linear).__name__} is no plain linear"
        if why := reason_against(linear):
            return why
    if head.embedding.dtype != head.fc.weight.dtype or not head.embedding.is_contiguous():
        return f"its embedding is {head.embedding.dtype}, or its rows are apart"
    if spec.kind == "dflash" and not spec.window_from_block:
        for window, causal in zip(spec.windows, spec.causal, strict=True):
            if window is not None and not causal and window < num_rows:
                return f"a row of its block would not see all of it, by a window of {window}"
    return ""
