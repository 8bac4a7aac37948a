"""What a race is set up from: the lanes, the reference run, and memory that runs out before it."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from engine.cache import ENVIRONMENT_VARIABLE
from engine.core.errors import RaceError, UnsupportedModel, is_out_of_memory
from engine.core.events import Step
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.drafters.auto import AutoDrafter
from engine.drafters.synthetic import SyntheticDrafter
from engine.kernels.cpu.build import has_kernels
from engine.kernels.cuda.available import SWITCH
from engine.loading.loading import load
from engine.runner import prepare as preparing
from engine.runner import target as target_module
from engine.session import set_up
from engine.session.lanes import decode_lane, reference
from engine.text import encode_prompt
from tests.helpers import cuda_races
from tests.helpers.fake_cuda import fake_cuda
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, trained


def ready_for(lanes: tuple[LaneSpec, ...], **params: Any) -> set_up.Ready:
    prompt = encode_prompt(trained().tokenizer, PROMPTS[0], False)
    return set_up.set_up(trained(), RaceSpec(lanes, SamplingParams(**params)), prompt)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.8, "seed": 3}, {"stop": ("\n",)}], ids=str)
def test_the_reference_run_writes_what_the_baseline_writes(params, narrow):
    """`synthetic:1` would not be accepted whole, and every figure at a chosen acceptance be wrong."""
    ready = ready_for(standard_lanes("synthetic:1", 3), max_new_tokens=16, **params)
    written = [
        [t for event in decode_lane(ready.order, lane) if isinstance(event, Step) for t in event.token_ids]
        for name, lane in ready.lanes.items()
        if name != "plain"
    ]
    assert reference(ready.order, ready.widths) == written[0] == written[1]
    drafter = ready.lanes["speculative"].drafter
    assert isinstance(drafter, SyntheticDrafter) and list(drafter._proposals) == written[0]


@pytest.mark.parametrize("k", [1, 2, 3, "auto"])
def test_no_step_drafts_more_than_its_widest_width_holds(k, narrow):
    """`auto` would be timed and asked at widths that the race has not probed, and a fixed k be cut short silently."""
    ready = ready_for(standard_lanes("ngram", k), max_new_tokens=24)
    lane = ready.lanes["speculative"]
    widest = max(lane.target.widths)
    assert lane.k == (widest - 1 if k == "auto" else k) and (k == "auto") == isinstance(lane.drafter, AutoDrafter)
    steps = [event for event in decode_lane(ready.order, lane) if isinstance(event, Step)]
    longest = max(step.num_drafted for step in steps)
    assert longest <= lane.k < widest and (longest or k == "auto")


def ran_out(*unused: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("is_cuda", [True, False], ids=["CUDA", "CPU"])
def test_memory_that_runs_out_at_load_is_no_failure_of_the_kernels(is_cuda, monkeypatch, tmp_path):
    """A model that almost fits would be called unsupported, or run on slower kernels in every race from then on."""
    has_kernels()  # the CPU's are compiled once for all tests, not into this cache
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    monkeypatch.setenv(SWITCH, "0")
    with fake_cuda() if is_cuda else nullcontext():
        loaded = cuda_races.on_device() if is_cuda else load(str(TRAINED), "bfloat16", "cpu")
        with monkeypatch.context() as patch:
            patch.setattr(target_module, "caches", ran_out)
            patch.setattr(preparing, "_lower", lambda *unused: pytest.fail("it went down a rung"))
            with pytest.raises(RaceError, match=r"not enough memory to prepare .*; choose a smaller model") as refused:
                loaded.make_ready()
        assert is_out_of_memory(refused.value) and not isinstance(refused.value, UnsupportedModel)
