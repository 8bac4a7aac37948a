"""EAGLE-3 drafts: vLLM's own accepted lists, and every form of head against the same head computed the long way."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.eagle3 import Eagle3Drafter
from engine.target.target import StaticTarget
from tests.helpers.dense_heads import Dense, eagle3
from tests.helpers.head_files import config_of, published, save, tensors_of
from tests.helpers.head_fixtures import (
    FIXTURES,
    HEADS,
    VOCAB,
    formats_target,
    made,
    raced,
    stock_target,
    trained_target,
    written,
)
from tests.helpers.head_steps import RACES, K, drafts, few
from tests.helpers.random_heads import EAGLE3, LAYERS, eagle3_tensors
from tests.helpers.tiny import LENGTH, threads


def test_the_accepted_lists_are_vllms():
    """Heads of the field would be shown with other acceptance than where they are served."""
    golden = json.loads((FIXTURES / "golden.json").read_text())
    with threads(1):
        steps = raced(
            trained_target(),
            made(f"eagle3:{HEADS['eagle3']}", trained_target(), 3),
            golden["prompt_token_ids"],
            3,
            num_new=61,
        )
    assert written(steps)[0][:60] == golden["greedy_token_ids"]
    accepted = [0, *golden["eagle3"]["per_step_accepted"]]
    assert [step.num_accepted for step in steps][: len(accepted)] == accepted


FORMS = {
    "speculators": {},
    "residual after the norm": {"config": {"norm_before_residual": False}},
    "one norm before fc": {"config": {"norm_before_fc": True}},
    "a norm for each state": {"config": {"fc_norm": True}},
    "fed back after the norm": {"config": {"norm_output": True}},
    "two states": {"config": {"eagle_aux_hidden_state_layer_ids": [1, 5]}},
    "embeddings and the last state": {"config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 6]}},
    "two layers": {"layers": {"num_hidden_layers": 2}},
    "normed queries": {"qk_norm": True},
    "qwen3 layers": {"layers": {"model_type": "qwen3"}, "qk_norm": True},
    "biases": {"layers": {"attention_bias": True}},
    "wide heads": {"layers": {"head_dim": 32}},
    "another theta": {"layers": {"rope_theta": 500.0}},
    "llama3 angles": {
        "layers": {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        }
    },
    "mrope, which is plain for text": {
        "layers": {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
        "dense": {"rope_scaling": None},
    },
    "angles by kind of layer": {
        "layers": {
            "rope_parameters": {"sliding_attention": {"rope_theta": 500.0}, "full_attention": {"rope_theta": 9e4}}
        },
        "dense": {"rope_parameters": {"rope_theta": 500.0}},
    },
    "sliding layers": {
        "layers": {
            "model_type": "qwen3",
            "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 5,
            "use_sliding_window": True,
        },
        "qk_norm": True,
    },
    "its own embedding": {"own": VOCAB},
    "another width": {"layers": {"hidden_size": 48}, "own": VOCAB},
    "a padded embedding": {"own": VOCAB + 40},
    "the whole vocabulary": {"config": {"draft_vocab_size": VOCAB}},
    "the target's output layer": {"config": {"draft_vocab_size": VOCAB}, "without": ["lm_head.weight"]},
    "no d2t": {"without": ["d2t"]},
    "no t2d": {"without": ["t2d"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@given(race=RACES)
@few
def test_every_form_drafts_what_the_long_way_does(tmp_path_factory, form, race):
    """A flag misread, a row of the cache left behind or a position off by one would only cost speed, and never
    be seen."""
    case = FORMS[form]
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
    check(drafter, dense, config, race, config["eagle_aux_hidden_state_layer_ids"])


@pytest.mark.parametrize("name", ["eagle3", "yuhuili", "yuhuili_spec"])
@given(race=RACES)
@few
def test_every_format_drafts_what_the_long_way_does(tmp_path_factory, name, race):
    """A published head would draft nonsense."""
    folder = published(name, tmp_path_factory.getbasetemp())
    config = config_of(folder)
    layers = config.get("transformer_layer_config", config)
    check(
        made(f"eagle3:{folder}", formats_target(), K, keep_logits=True),
        Dense(tensors_of(folder), layers),
        config,
        race,
        [2, 3, 3] if name == "yuhuili" else [2, 3, 4],
    )


def check(drafter, dense, config, race, layers) -> None:
    """Every draft of a race is the long way's, whatever steps without a draft lie between; its logits too."""
    embedding, output = stock_target().get_input_embeddings().weight, stock_target().lm_head.weight
    for draft, k, committed, states in drafts(drafter, race, layers):
        assert len(draft.token_ids) == (k if len(states) else 0)
        if draft.token_ids:
            ids, logits = eagle3(dense, config, embedding, output, states, committed, k)
            assert draft.token_ids == tuple(ids)
            finite = draft.logits[:, draft.logits[0].isfinite()]
            torch.testing.assert_close(finite.double(), logits, rtol=1e-3, atol=1e-3)
            assert [int(i) for i in draft.logits.argmax(-1)] == ids


def test_the_original_and_its_conversion_are_one_head(tmp_path):
    """One head would draft differently by the format it comes in. The conversion states `norm_before_residual`, which
    the original lacks."""
    config = config_of(published("yuhuili_spec", tmp_path))
    prompt = list(range(7, 40))
    converted_drafts = []
    for flag in (False, True):
        converted = save(
            tmp_path / str(flag),
            {**config, "norm_before_residual": flag},
            tensors_of(published("yuhuili_spec", tmp_path)),
        )
        converted_drafts.append(
            [s.drafted for s in raced(formats_target(), made(f"eagle3:{converted}", formats_target(), 3), prompt, 3)]
        )
    original = [
        s.drafted
        for s in raced(
            formats_target(), made(f"eagle3:{published('yuhuili', tmp_path)}#aux=2,3,4", formats_target(), 3), prompt, 3
        )
    ]
    assert original == converted_drafts[0] != converted_drafts[1]


def test_another_choice_of_states():
    """`#aux=` would be ignored."""
    plain, other = (made(f"eagle3:{HEADS['eagle3']}{option}", trained_target(), 3) for option in ("", "#aux=1,2,5"))
    assert (plain.hidden_layers, other.hidden_layers) == ((1, 3, 5), (1, 2, 5))


@given(
    st.lists(st.integers(3, 500), min_size=3, max_size=20),
    st.sampled_from([0.0, 0.8]),
    st.integers(1, K),
    st.integers(1, K),
)
@few
def test_a_draft_that_stops_early_picks_the_same(prompt, temperature, k, stop):
    """`auto` would draft other tokens than a fixed k does, or be told margins that are none."""
    target = trained_target()
    drafter = made(f"eagle3:{HEADS['eagle3']}", target, K, prompt=prompt, temperature=temperature)
    _, rows = StaticTarget(target.prepared, LENGTH, (8,), drafter.hidden_layers).extend(prompt[:-1], 0)
    drafter.prefill(prompt, rows)
    whole = drafter.propose(prompt, None, k).token_ids
    margins = []
    drafter.prefill(prompt, rows)
    assert (
        drafter.propose_while(
            prompt, None, k, lambda _, margin: margins.append(margin) or len(margins) < stop
        ).token_ids
        == whole[:stop]
    )
    assert len(margins) == min(k, stop) and all(margin >= 0 for margin in margins)
