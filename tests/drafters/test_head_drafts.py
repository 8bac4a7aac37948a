"""Drafts of heads: vLLM's own accepted lists, and every form and format of head against the same head computed the long
way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.interfaces import Draft
from engine.drafters.eagle3 import Eagle3Drafter
from tests.helpers.dense_heads import Dense, dflash, eagle3
from tests.helpers.head_files import config_of, published, save, tensors_of
from tests.helpers.head_fixtures import (
    FIXTURES,
    HEADS,
    VOCAB,
    features,
    formats_target,
    made,
    raced,
    stock_target,
    trained_target,
    written,
)
from tests.helpers.random_heads import (
    DFLASH,
    DFLASH_FORMS,
    EAGLE3,
    EAGLE3_FORMS,
    LAYERS,
    ZLAB_CONFIG,
    dflash_tensors,
    eagle3_tensors,
)
from tests.helpers.tiny import threads

K = 5
IDS = st.integers(0, VOCAB - 1)
RACES = st.tuples(
    st.lists(IDS, min_size=1, max_size=20),  # the prompt
    st.lists(
        st.tuples(st.integers(0, K), st.lists(IDS, min_size=1, max_size=K + 1)), min_size=1, max_size=5
    ),  # the k of a step, what it commits
)
few = settings(max_examples=5)


def drafts(drafter: Any, race: Any, layers: Sequence[int]) -> Iterator[tuple[Draft, int, list[int], torch.Tensor]]:
    """Every draft of a race on formats/target and of the step after it, with its k, all tokens before it, and the
    target's states of all but the last of these."""
    prompt, steps = race
    aux = features([*prompt, *(token for _, tokens in steps for token in tokens)], layers)
    committed, new = list(prompt), None
    drafter.prefill(committed, aux[: len(prompt) - 1])
    for k, tokens in [*steps, (K, [])]:
        known = len(committed) - 1
        yield drafter.propose(committed, new, k), k, committed, aux[:known]
        committed += tokens
        new = aux[known : len(committed) - 1]


@pytest.mark.parametrize(
    ("head", "k", "name"),
    [
        ("eagle3", 3, "eagle3"),
        ("dflash", 7, "dflash"),
        ("dflash#bidirectional", 7, "dflash"),
        ("dflash#causal", 7, "dflash_causal_in_block"),
    ],
)
def test_the_accepted_lists(head, k, name):
    """Published heads would have another acceptance here than in vLLM, under either mask."""
    golden = json.loads((FIXTURES / "golden.json").read_text())
    kind, hash_, option = head.partition("#")
    drafter = made(f"{kind}:{HEADS[kind]}{hash_}{option}", trained_target(), k)
    with threads(1):
        steps = raced(trained_target(), drafter, golden["prompt_token_ids"], k, num_new=61)
    assert written(steps)[0][:60] == golden["greedy_token_ids"]
    accepted = [0, *golden[name]["per_step_accepted"]]
    assert [step.num_accepted for step in steps][: len(accepted)] == accepted


def check(
    drafter: Any,
    race: Any,
    layers: Sequence[int],
    long_way: Callable[[torch.Tensor, Sequence[int], int], tuple[list[int], torch.Tensor]],
) -> None:
    """Every draft of a race, and its logits, are those of long_way(states, tokens, k), also after empty drafts."""
    for draft, k, committed, states in drafts(drafter, race, layers):
        assert len(draft.token_ids) == (0 if isinstance(drafter, Eagle3Drafter) and not len(states) else k)
        if draft.token_ids:
            ids, logits = long_way(states, committed, k)
            assert draft.token_ids == tuple(ids[:k])
            finite = draft.logits[:, draft.logits[0].isfinite()]
            torch.testing.assert_close(finite.double(), logits[:k], rtol=1e-3, atol=1e-3)
            assert [int(i) for i in draft.logits.argmax(-1)] == ids[:k]


# EAGLE-3


def check_eagle3(drafter: Any, dense: Dense, config: Any, race: Any, layers: Sequence[int]) -> None:
    embedding, output = stock_target().get_input_embeddings().weight, stock_target().lm_head.weight
    check(drafter, race, layers, lambda aux, ids, k: eagle3(dense, config, embedding, output, aux, ids, k))


@pytest.mark.slow
@pytest.mark.parametrize("form", EAGLE3_FORMS)
@given(race=RACES)
@few
def test_every_form_of_eagle3_drafts_what_the_long_way_does(tmp_path_factory, form, race):
    """A flag misread or a position off by one would only cost speed, and never be seen."""
    case = EAGLE3_FORMS[form]
    layers, config = {**LAYERS, **case.get("layers", {})}, {**EAGLE3, **case.get("config", {})}
    whole = eagle3_tensors(layers, config, qk_norm=case.get("qk_norm", False), own=case.get("own", 0))
    folder = tmp_path_factory.getbasetemp() / f"eagle3-{form.replace(' ', '-')}"
    if not folder.exists():
        save(
            folder,
            {**config, "transformer_layer_config": layers},
            {name: value for name, value in whole.items() if name not in case.get("without", ())},
        )
    if "lm_head.weight" in case.get("without", ()):
        del whole["lm_head.weight"]
    dense = Dense(whole, {**layers, **case.get("dense", {})})
    drafter = made(f"eagle3:{folder}", formats_target(), K, keep_logits=True)
    assert type(drafter) is Eagle3Drafter
    check_eagle3(drafter, dense, config, race, config["eagle_aux_hidden_state_layer_ids"])


@pytest.mark.parametrize("name", ["eagle3", "yuhuili", "yuhuili_spec"])
@given(race=RACES)
@few
def test_every_format_of_eagle3_drafts_what_the_long_way_does(tmp_path_factory, name, race):
    """A published head would draft nonsense."""
    folder = published(name, tmp_path_factory.getbasetemp())
    config = config_of(folder)
    layers = config.get("transformer_layer_config", config)
    check_eagle3(
        made(f"eagle3:{folder}", formats_target(), K, keep_logits=True),
        Dense(tensors_of(folder), layers),
        config,
        race,
        [2, 3, 3] if name == "yuhuili" else [2, 3, 4],
    )


def test_another_choice_of_states():
    """`#aux=` would be ignored."""
    plain, other = (made(f"eagle3:{HEADS['eagle3']}{option}", trained_target(), 3) for option in ("", "#aux=1,2,5"))
    assert (plain.hidden_layers, other.hidden_layers) == ((1, 3, 5), (1, 2, 5))


# DFlash


def check_dflash(
    drafter: Any,
    dense: Dense,
    race: Any,
    layers: Sequence[int],
    masks: Any,
    scale: float = 1.0,
    multiplier: float = 1.0,
    softcap: float | None = None,
) -> None:
    embedding, output = stock_target().get_input_embeddings().weight * scale, stock_target().lm_head.weight
    size = K + (not masks.get("from_anchor"))

    def long_way(states: torch.Tensor, tokens: Sequence[int], k: int) -> tuple[list[int], torch.Tensor]:
        ids, logits = dflash(dense, embedding, output, states, tokens, size, 511, **masks)
        logits = logits * multiplier
        return ids, logits if softcap is None else torch.tanh(logits / softcap) * softcap

    check(drafter, race, layers, long_way)


@pytest.mark.parametrize("form", DFLASH_FORMS)
@given(race=RACES)
@few
def test_every_form_of_dflash_drafts_what_the_long_way_does(tmp_path_factory, form, race):
    """A mask or flag misread, or a context row left behind, would only cost speed, and never be seen."""
    case = DFLASH_FORMS[form]
    zlab = case.get("zlab")
    layers = {**LAYERS, "model_type": "qwen3", **case.get("layers", {})}
    config = {**ZLAB_CONFIG, **zlab} if zlab is not None else {**DFLASH, **case.get("config", {})}
    tensors = dflash_tensors(layers, {"aux_hidden_state_layer_ids": [2, 3, 4], **config}, own=case.get("own", 0))
    folder = tmp_path_factory.getbasetemp() / f"dflash-{form.replace(' ', '-')}"
    if not folder.exists():
        save(
            folder,
            {**config, **layers} if zlab is not None else {**config, "transformer_layer_config": layers},
            tensors,
        )
    scale, softcap = config.get("input_embedding_scale", 1.0), config.get("final_logit_softcapping")
    drafter = made(f"dflash:{folder}{case.get('option', '')}", formats_target(), K, keep_logits=True)
    masks = {
        "anchored": zlab is None,
        "causal": case.get("causal", (False,) * 3),
        "from_anchor": config.get("sample_from_anchor", False),
    }
    check_dflash(
        drafter,
        Dense(tensors, layers),
        race,
        case.get("aux", [2, 3, 4]),
        masks,
        scale,
        config.get("output_multiplier", 1.0),
        softcap,
    )


@pytest.mark.parametrize("name", ["dflash", "swa", "zlab", "zlab_spec"])
@given(race=RACES)
@few
def test_every_format_of_dflash_drafts_what_the_long_way_does(tmp_path_factory, name, race):
    """A published head would draft nonsense."""
    folder = published(name, tmp_path_factory.getbasetemp())
    config = config_of(folder)
    layers = config.get("transformer_layer_config", config)
    masks = {"anchored": name != "zlab", "causal": (name == "swa", False)}
    check_dflash(
        made(f"dflash:{folder}", formats_target(), K, keep_logits=True),
        Dense(tensors_of(folder), layers),
        race,
        [2, 3, 4],
        masks,
    )
