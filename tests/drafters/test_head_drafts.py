"""Drafts of heads: vLLM's accepted lists, and every form and format of head against itself computed the long way."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter
from tests.helpers import FIXTURES
from tests.helpers.fakes import tokens_of
from tests.helpers.heads import (
    AUX,
    FORMS,
    HEADS,
    MASK,
    VOCAB,
    Head,
    K,
    formats_target,
    made,
    published,
    raced,
    random_head,
    read,
    save,
    stock_target,
)
from tests.helpers.tiny import threads
from tests.helpers.trained import trained

# The long way: in float64, the whole text at once, without a cache, straight from the tensors of a file. Written from
# the papers and formats, of plain matrix products; shares no line with the engine.

Drafts = tuple[list[int], Tensor]  # ids, and their logits [ids, draft vocabulary]


def frequencies(config: Mapping[str, Any]) -> Tensor:
    """Angles per position of each pair of dimensions; `llama3` scaling as Meta describes it."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("sliding_attention", rope)  # of several, as the speculators package trains
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    plain = theta ** -(torch.arange(0, config["head_dim"], 2, dtype=torch.float64) / config["head_dim"])
    if rope.get("rope_type", "default") == "default":
        return plain
    assert rope["rope_type"] == "llama3"
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (share + (1 - share) / rope["factor"])


def turned(x: Tensor, positions: Tensor, config: Mapping[str, Any]) -> Tensor:
    """x [n, heads, dim], each pair (i, i + dim / 2) turned in its plane."""
    half = x.shape[-1] // 2
    angles = (positions[:, None] * frequencies(config))[:, None]
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], -1)


class Dense:
    """The tensors of one head as float64, and what its layers are made of. embedding, output: the target's."""

    def __init__(self, head: Head, embedding: Tensor, output: Tensor) -> None:
        self.t = {
            name.replace("midlayer.", "layers.0."): value.double() if value.is_floating_point() else value
            for name, value in head.tensors.items()
        }
        self.config, self.c, self.eps = head.config, head.layers, head.layers["rms_norm_eps"]
        self.embedding = self.t.get("embed_tokens.weight", embedding.double())
        self.output = self.t.get("lm_head.weight", output.double())

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.t[f"{name}.weight"]

    def linear(self, name: str, x: Tensor) -> Tensor:
        y = x @ self.t[f"{name}.weight"].T
        return y + self.t[f"{name}.bias"] if f"{name}.bias" in self.t else y

    def project(self, layer: int, which: str, x: Tensor, positions: Tensor) -> Tensor:
        """q, k or v [n, heads, dim]."""
        name = f"layers.{layer}.self_attn.{which}"
        y = self.linear(f"{name}_proj", x).unflatten(-1, (-1, self.c["head_dim"]))
        if f"{name}_norm.weight" in self.t:
            y = self.norm(f"{name}_norm", y)
        return y if which == "v" else turned(y, positions, self.c)

    def layer(self, layer: int, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """What a layer makes of its residual x. mask [n, m]: true where it may look."""
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, -math.inf).softmax(-1), v).flatten(1)
        x = x + self.linear(f"layers.{layer}.self_attn.o_proj", mixed)
        y, name = self.norm(f"layers.{layer}.post_attention_layernorm", x), f"layers.{layer}.mlp"
        gate, up = self.linear(f"{name}.gate_proj", y), self.linear(f"{name}.up_proj", y)
        return x + self.linear(f"{name}.down_proj", torch.nn.functional.silu(gate) * up)

    def token_of(self, index: int) -> int:
        if "d2t" in self.t:
            return index + int(self.t["d2t"][index])
        return int(self.t["t2d"].nonzero()[index]) if "t2d" in self.t else index

    def window(self, layer: int) -> int:
        if "swa_window_size" in (own := self.config.get("dflash_config", {})):  # of all layers, as ModelOpt writes it
            return own["swa_window_size"]
        types = self.c.get("layer_types") or ["full_attention"] * 99
        return self.c["sliding_window"] if types[layer] == "sliding_attention" else 10**9


def eagle3(dense: Dense, aux: Tensor, tokens: Sequence[int], k: int) -> Drafts:
    """k drafted greedily after `tokens`. aux [len(tokens) - 1, features]."""
    aux, flags = aux.double(), dense.config
    if flags.get("norm_before_fc"):
        aux = dense.norm("input_norm", aux)
    if flags.get("fc_norm"):
        parts = aux.chunk(sum("fc_norm" in name for name in dense.t), -1)
        aux = torch.cat([dense.norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)], -1)
    hidden = dense.linear("fc", aux)
    drafted: list[int] = []
    logits = []
    for _ in range(k):
        positions = torch.arange(len(hidden), dtype=torch.float64)
        back = positions[:, None] - positions
        normed = dense.norm("layers.0.hidden_norm", hidden)
        x = normed if flags.get("norm_before_residual") else hidden
        embedded = dense.embedding[torch.tensor([*tokens[1:], *drafted])]
        inputs = torch.cat([dense.norm("layers.0.input_layernorm", embedded), normed], -1)
        for layer in range(dense.c["num_hidden_layers"]):
            if layer:
                inputs = dense.norm(f"layers.{layer}.input_layernorm", x)
            q, key, value = (dense.project(layer, which, inputs, positions) for which in "qkv")
            x = dense.layer(layer, x, q, key, value, (back >= 0) & (back < dense.window(layer)))
        out = dense.norm("norm", x[-1])
        logits.append(dense.output @ out)
        drafted.append(dense.token_of(int(logits[-1].argmax())))
        hidden = torch.cat([hidden, (out if flags.get("norm_output") else x[-1])[None]])
    return drafted, torch.stack(logits)


def dflash(dense: Dense, aux: Tensor, tokens: Sequence[int], k: int, causal: Sequence[bool]) -> Drafts:
    """k that a block drafts after `tokens`. causal: for each layer. speculators count windows from the block."""
    config, start = dense.config, len(tokens) - 1
    from_anchor, is_nested = config.get("sample_from_anchor", False), "transformer_layer_config" in config
    from_anchor |= "query_zero_predicts_next" in config.get("dflash_config", ())
    size = k + (not from_anchor)
    context = dense.norm("hidden_norm", dense.linear("fc", aux.double()))
    before, rows = torch.arange(start, dtype=torch.float64), torch.arange(start, start + size, dtype=torch.float64)
    every = torch.cat([before, rows])
    x = dense.embedding[torch.tensor([tokens[-1], *[MASK] * (size - 1)])] * config.get("input_embedding_scale", 1.0)
    for layer in range(dense.c["num_hidden_layers"]):
        y = dense.norm(f"layers.{layer}.input_layernorm", x)
        sides = [(dense.project(layer, which, context, before), dense.project(layer, which, y, rows)) for which in "kv"]
        back, window = rows[:, None] - every, dense.window(layer)
        mask = (every[None] >= start - window).expand(size, -1) if is_nested else back.abs() < window
        if causal[layer]:
            mask = mask & (back >= 0)
        x = dense.layer(layer, x, dense.project(layer, "q", y, rows), *map(torch.cat, sides), mask)
    logits = dense.norm("norm", x)[0 if from_anchor else 1 :] @ dense.output.T * config.get("output_multiplier", 1.0)
    if softcap := config.get("final_logit_softcapping"):
        logits = torch.tanh(logits / softcap) * softcap
    return [dense.token_of(i) for i in logits.argmax(-1).tolist()], logits


@torch.inference_mode()
def features(tokens: Sequence[int], layers: Sequence[int]) -> Tensor:
    """The stock target's hidden states [len(tokens), len(layers) * hidden size]."""
    states = stock_target()(input_ids=torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states
    return torch.cat([states[i][0] for i in layers], -1)


# Comparisons

IDS = st.integers(0, VOCAB - 1)
STEPS = st.tuples(st.integers(0, K), st.lists(IDS, min_size=1, max_size=K + 1))  # the k of a step, what it commits
RACES = st.tuples(st.lists(IDS, min_size=1, max_size=20), st.lists(STEPS, min_size=1, max_size=5))  # with the prompt
GOLDEN = [
    ("eagle3", 3, "eagle3"), ("dflash", 7, "dflash"), ("dflash#bidirectional", 7, "dflash"),
    ("dflash#causal", 7, "dflash_causal_in_block"),
]  # fmt: skip


@pytest.mark.parametrize(("head", "k", "name"), GOLDEN)
def test_the_accepted_lists(head, k, name):
    """Published heads would have another acceptance here than in vLLM, under either mask."""
    golden = json.loads((FIXTURES / "golden.json").read_text())
    kind, hash_, option = head.partition("#")
    drafter = made(f"{kind}:{HEADS[kind]}{hash_}{option}", trained(), k)
    with threads(1):
        steps = raced(trained(), drafter, golden["prompt_token_ids"], k, num_new=61)
    assert tokens_of(steps)[:60] == golden["greedy_token_ids"]
    accepted = [0, *golden[name]["per_step_accepted"]]
    assert [step.num_accepted for step in steps][: len(accepted)] == accepted


# Published heads: a form says what is not in their files.
PUBLISHED = {
    "eagle3": {"eagle3": {}, "yuhuili": {"aux": [2, 3, 3]}, "yuhuili_spec": {}},
    "dflash": {"dflash": {}, "swa": {"causal": (True, False)}, "zlab": {}, "zlab_spec": {}},
}


@cache
def drafter_and_dense(kind: str, form: str) -> tuple[Any, Dense]:
    """A head of that form or format, as it drafts and as it is computed the long way."""
    with TemporaryDirectory() as place:
        if form in PUBLISHED[kind]:
            folder = published(form, Path(place))
        else:
            folder = save(Path(place), *random_head(kind, **FORMS[kind][form]))
        option = FORMS[kind].get(form, {}).get("option", "")
        drafter = made(f"{kind}:{folder}{option}", formats_target(), K, keep_logits=True)
        return drafter, Dense(read(folder), stock_target().get_input_embeddings().weight, stock_target().lm_head.weight)


@pytest.mark.parametrize(
    ("kind", "form"), [(kind, form) for cases in (FORMS, PUBLISHED) for kind, forms in cases.items() for form in forms]
)
@given(race=RACES)
@settings(max_examples=3)
def test_every_head_drafts_what_the_long_way_does(kind, form, race):
    """A published head would draft nonsense; or a mask, flag or position misread, or a context row left behind, only
    cost speed, and never be seen. Also after empty drafts."""
    case = {**FORMS[kind], **PUBLISHED[kind]}[form]
    drafter, dense = drafter_and_dense(kind, form)
    assert type(drafter) is (Eagle3Drafter if kind == "eagle3" else DFlashDrafter)
    prompt, steps = race
    tokens = [*prompt, *(token for _, new in steps for token in new)]
    states = features(tokens, case.get("aux") or dense.config.get("eagle_aux_hidden_state_layer_ids", AUX))
    drafter.prefill(prompt, states[: len(prompt) - 1])
    end, new = len(prompt), None
    for k, committed in [*steps, (K, [])]:
        draft = drafter.propose(tokens[:end], new, k)
        assert len(draft.token_ids) == (0 if kind == "eagle3" and end == 1 else k)
        if draft.token_ids:
            if kind == "eagle3":
                ids, logits = eagle3(dense, states[: end - 1], tokens[:end], k)
            else:
                ids, logits = dflash(dense, states[: end - 1], tokens[:end], K, case.get("causal", (False,) * 3))
            assert draft.token_ids == tuple(ids[:k])
            finite = draft.logits[:, draft.logits[0].isfinite()]
            torch.testing.assert_close(finite.double(), logits[:k], rtol=1e-3, atol=1e-3)
            assert [int(i) for i in draft.logits.argmax(-1)] == ids[:k]
        new, end = states[end - 1 : end + len(committed) - 1], end + len(committed)
