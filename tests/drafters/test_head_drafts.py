"""Drafts of heads: vLLM's own accepted lists, and every form and format of head against the same head computed the long
way."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter
from tests.helpers import FIXTURES
from tests.helpers.dense_heads import Dense, dflash, eagle3
from tests.helpers.fakes import tokens_of
from tests.helpers.heads import (
    AUX,
    FORMS,
    HEADS,
    VOCAB,
    K,
    features,
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
