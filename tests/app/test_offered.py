"""What a visitor may name: what is on offer, in every part of a drafter's name, and what the operator allows."""

import os
import re
import sys
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.catalogue.catalogue import NOT_ALLOWED, Pair, load
from app.catalogue.machine import Machine
from engine.core.errors import UsageError
from engine.core.spec import MAX_DRAFTER, LaneSpec
from engine.drafters import DRAFTERS, check, label
from engine.loading.sources import DEFAULT_TARGET
from tests.helpers.machines import LARGE, SMALL

CATALOGUES = {machine: load(machine) for machine in (SMALL, LARGE)}
LOOKED: list[str] = []  # what touched a file, a folder or the network


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir", "socket.connect", "socket.getaddrinfo", "import"):
        LOOKED.append(f"{event} {arguments[:1]}")


for name in ("none", "ngram", "draft_model:a/b", "eagle3", "hybrid:ngram+eagle3", "synthetic:1"):
    check(name)  # imports what reads these names
sys.addaudithook(_audit)


RANDOM = "random:Qwen/Qwen3-0.6B"
SOURCES = ["owner/name", "/etc", "./assets", "~", RANDOM, "random:/tmp/config.json", DEFAULT_TARGET, "", "0.5", "3"]
leaves = st.one_of(
    st.sampled_from([*DRAFTERS, "ngram:3", "ngram:/etc", RANDOM, "", "+", ":"]),
    st.builds("{}:{}".format, st.sampled_from([*DRAFTERS, "random"]), st.sampled_from(SOURCES)),
    st.sampled_from([pair.drafter for pair in CATALOGUES[LARGE].runnable]),
    st.text(max_size=5),
)
rates = st.sampled_from(["0.5", "1", "0", "7", "nan", "", " 0.5", "0.5+"])
# A drafter's name, and the names of all drafters that it is made of.
nested = st.recursive(
    leaves.map(lambda text: (text, [text])),
    lambda inner: st.one_of(
        st.builds(lambda rate, of: (f"synthetic:{rate}+{of[0]}", of[1]), rates, inner),
        st.builds(lambda first, then: (f"hybrid:{first[0]}+{then[0]}", first[1] + then[1]), inner, inner),
    ),
    max_leaves=4,
)


@given(nested, st.sampled_from(CATALOGUES[LARGE].runnable))
@example(("synthetic:0.5+draft_model:owner/name", ["draft_model:owner/name"]), CATALOGUES[SMALL].default)
@example(("synthetic:0.5+draft_model:/etc", ["draft_model:/etc"]), CATALOGUES[SMALL].default)
@example(("synthetic:0.5+hybrid:ngram+eagle3:/etc", ["ngram", "eagle3:/etc"]), CATALOGUES[SMALL].default)
def test_only_what_is_offered_may_be_named(named: tuple[str, list[str]], pair: Pair) -> None:
    """With `synthetic:0.5+draft_model:X` a visitor made the server fetch, build or look for whatever X named."""
    text, parts = named
    catalogue = CATALOGUES[LARGE]
    offered = catalogue.drafters(pair)
    with patch("os.stat", wraps=os.stat) as stat, patch("os.lstat", wraps=os.lstat) as lstat:
        LOOKED.clear()
        try:
            accepted = catalogue.drafter(pair, text) == text
        except UsageError:
            accepted = False
        assert not LOOKED and not stat.called and not lstat.called
    if accepted:
        check(text)
        free = ("ngram", "none", "synthetic")
        assert text in offered or all(part in offered or part.split(":")[0] in free for part in parts)
        assert "/etc" not in text and "owner" not in text and "random" not in text


def test_what_is_offered_may_be_named() -> None:
    """The page tells visitors to type synthetic:0.8, and the cost of a drafter on offer is on offer too."""
    catalogue = CATALOGUES[SMALL]
    for text in ("none", "ngram:3", "eagle3", "hybrid:ngram+eagle3", "synthetic:0.8", "synthetic:0.8+eagle3",
                 "synthetic:1+hybrid:ngram+eagle3"):  # fmt: skip
        assert catalogue.drafter(catalogue.default, text) == text


def test_a_name_without_end_is_refused_unread() -> None:
    """Five million zeros are a rate, and would be in a lane, a recording and every sentence about it."""
    catalogue, longest = CATALOGUES[SMALL], "synthetic:0." + "0" * (MAX_DRAFTER - 12)
    for ask in (lambda text: catalogue.drafter(catalogue.default, text), check, lambda text: LaneSpec("a", text, 3)):
        ask(longest)
        for text in (f"{longest}0", "synthetic:" + "0" * 5_000_000, "hybrid:ngram" + "+ngram" * 1000, "x" * 10**6):
            with pytest.raises(UsageError, match=f"{len(text)} characters; at most {MAX_DRAFTER} ") as refused:
                ask(text)
            assert len(str(refused.value)) < 200


def test_a_label_never_hides_what_an_argument_says() -> None:
    """Two drafters with one label are indistinguishable."""
    drafters = {pair.drafter for pair in CATALOGUES[LARGE].runnable} | {"none", "ngram:3", "eagle3:owner/name"}
    drafters |= {"hybrid:ngram+dflash", "hybrid:ngram:3+dflash", "hybrid:ngram+draft_model:a/b", "synthetic:1"}
    assert len({*map(label, drafters)}) == len(drafters)


UNKNOWN = "unknown pair .*all, .*gemma3-270m-ngram.*loaded"
BUNDLED = {f"gemma3-270m-{drafter}" for drafter in ("ngram", "eagle3", "dflash", "hybrid")}
HEADS = "qwen3-4b-dflash,qwen3-8b-draft,qwen3.5-9b-dflash"
# Machine, its pairs, target and drafter of its command line -> what may be raced, or why it does not start.
OFFERED: list[Any] = [
    (SMALL, "all", (), BUNDLED),
    (SMALL, "loaded", (), BUNDLED),
    (SMALL, "loaded", ("some/folder", "ngram"), {"command-line"}),
    (SMALL, "qwen3-8b-ngram,gemma3-270m-dflash", (), {"gemma3-270m-dflash", "gemma3-270m-hybrid"}),
    (LARGE, "loaded", (), {"qwen3-8b-eagle3", "qwen3-8b-ngram"}),
    (LARGE, HEADS, (), {"qwen3-8b-eagle3", *HEADS.split(",")}),
    *(
        (SMALL, pairs, (), UNKNOWN)
        for pairs in ("", "gemma3-270m-ngram,", "every", "ALL", "loaded,all", "command-line")
    ),
]


@pytest.mark.parametrize(("machine", "pairs", "named", "offered"), OFFERED)
def test_whoever_runs_the_page_says_what_may_be_loaded(machine: Machine, pairs: str, named: Any, offered: Any) -> None:
    """One visitor who chose another pair took the model from everybody, or began to fetch tens of GB; or a misspelt
    pair would be left out in silence. What this machine cannot run stays refused with its own reason."""
    if offered == UNKNOWN:
        with pytest.raises(UsageError, match=offered):
            load(machine, pairs=pairs)
        return
    catalogue = load(machine, *named, pairs=pairs)
    assert {pair.id for pair in catalogue.runnable} == offered
    for offer in CATALOGUES[machine].offers:
        if offer.pair.id not in offered:
            with pytest.raises(UsageError, match=re.escape(offer.reason or NOT_ALLOWED)):
                catalogue.pair(offer.pair.id)
            if ":" in offer.pair.drafter:
                with pytest.raises(UsageError, match="unknown drafter"):
                    catalogue.drafter(catalogue.default, offer.pair.drafter)
