"""How much memory a pair is said to need, against what the engine loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from app.catalogue.catalogue import on_hub
from app.catalogue.fits import _drafter_bytes, reason, repository
from app.catalogue.machine import GIB
from engine.layers.published import num_parameters
from engine.loading.random_targets import shipped_config
from tests.helpers import FIXTURES
from tests.helpers.machines import with_gpu

HEADS = {"eagle3": "eagle3", "dflash": "dflash", "zlab": "dflash"}


def num_weights(folder: Path) -> int:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys() if "2" not in name)  # noqa: SIM118


@pytest.mark.parametrize("name", HEADS)
def test_a_heads_memory_holds_its_weights_and_cache(name: str) -> None:
    """The last gibibyte would be missing once the target is loaded."""
    folder = FIXTURES / "formats" / name
    config: Mapping[str, Any] = json.loads((folder / "config.json").read_text())
    target = json.loads((FIXTURES / "formats" / "target" / "config.json").read_text())
    short, long = (_drafter_bytes(target, HEADS[name], config, length, 2) for length in (0, 1000))
    assert num_weights(folder) * 2 <= short < long


@given(st.sampled_from(on_hub()), st.floats(1, 300))
def test_what_is_offered_has_room_for_its_weights_and_more_room_offers_no_less(
    pair: tuple[str, str], gib: float
) -> None:
    """A pair would be refused although memory suffices, or offered although it does not."""
    if not reason(*pair, with_gpu(gib)):
        assert 2 * num_parameters(shipped_config(pair[0])) < gib * GIB
        assert not reason(*pair, with_gpu(gib + 10))


@pytest.mark.parametrize(
    ("drafter", "name"),
    [
        *((drafter, "") for drafter in ("ngram", "ngram:3", "none", "hybrid:ngram+eagle3")),
        *((drafter, "a/b") for drafter in ("draft_model:a/b", "eagle3:a/b#aux=1,2,3", "hybrid:ngram+dflash:a/b")),
    ],
)
def test_the_repository_of_a_drafter(drafter: str, name: str) -> None:
    """The hub would be queried for something that is not a repository, or not for one that is fetched later."""
    assert repository(drafter) == name
