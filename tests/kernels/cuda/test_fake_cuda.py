"""What a GPU would refuse, found without one: the engine's code for CUDA on a device that only says it is one
(`fake_cuda.py`)."""

from __future__ import annotations

import copy
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.cache import ENVIRONMENT_VARIABLE
from engine.choice.accept import Coupled
from engine.choice.sampler import Sampler
from engine.decode import decode
from engine.drafters import DrafterContext, make
from engine.drafters.device_draft_model import DeviceDraftModelDrafter
from engine.drafters.device_heads import DeviceDFlashDrafter, DeviceEagle3Drafter
from engine.events import Failed, Prompt, Step
from engine.exactness import probe as exactness
from engine.interfaces import MarginDrafter
from engine.kernels.choose import choose
from engine.kernels.cuda.available import SWITCH, reason_against, reason_against_dtype
from engine.kernels.cuda.graphs import FixedCall, GraphPool
from engine.measure import bandwidth
from engine.models.loading import LoadedModel
from engine.progress import silent
from engine.session import TorchRace
from engine.session import set_up as backend
from engine.spec import LaneSpec, RaceSpec, SamplingParams
from engine.target.prepare import prepare
from engine.target.prepared import Prepared
from engine.target.target import StaticTarget
from tests.helpers import fake_cuda as fake
from tests.helpers import (
    gpu_kernels,  # noqa: F401  it switches the interpreter on
)
from tests.helpers.cuda_races import LANES, PROMPT, fresh, ready, trained
from tests.helpers.fake_cuda import CUDA, fake_cuda
from tests.helpers.fakes import Empty, Ends, Oracle, Random, tokens_of
from tests.helpers.tiny import LENGTH, TRAINED, random_ids

WIDTHS = (1, 4)
STEPS = [("llama", torch.bfloat16), ("gemma3", torch.float16), ("qwen3", torch.bfloat16), ("qwen3_5", torch.bfloat16)]
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, max_new_tokens=5),
    "temperature": SamplingParams(temperature=0.8, seed=3, max_new_tokens=5),
    "top-k and top-p": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=3, max_new_tokens=5),
}


def lane(model: Prepared, drafter: Any, params: SamplingParams, **more: Any) -> list[Any]:
    """The events of an audited lane, whose steps are captured."""
    target = StaticTarget(model, LENGTH, WIDTHS, **more)
    rule = Coupled(Sampler(params, model.vocab_size, model.kernels))
    target.warm(random_ids(20, model.vocab_size), rule)
    return list(
        decode(
            target,
            drafter,
            rule,
            random_ids(21, model.vocab_size),
            Ends(params.max_new_tokens),
            params.max_new_tokens,
            max(WIDTHS) - 1,
            audit=True,
        )
    )


# Steps


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), STEPS, ids=lambda x: str(x).removeprefix("torch."))
def test_whole_steps_run_captured_by_torchs_kernels(name, dtype, monkeypatch):
    """The first step on a GPU would end in an error: a tensor left on the CPU, a question to the host in a capture,
    memory laid out otherwise than on a CPU; or top-k and top-p wait for the host in every row."""
    monkeypatch.setenv(SWITCH, "0")
    model = fresh(name, dtype)
    with fake_cuda() as device:
        model = ready(model)
        assert not model.kernels.triton
        for params in SAMPLINGS.values():
            plain = lane(model, Empty(), params)
            truth = tokens_of(plain[1:-1])
            assert len(truth) == 5 and plain[-1].reason == "length"
            before, num_graphs = device.waits, len(device.graphs)
            events = lane(model, Oracle(truth), params)
            steps = [e for e in events if isinstance(e, Step)]
            assert tokens_of(steps) == truth and len(steps) == 2 and steps[0].num_accepted == 3
            assert len(device.graphs) - num_graphs == 1 + len(WIDTHS), (
                "the pool's own, and one a width, all before the first step"
            )
            assert device.waits - before <= 4 + 4 * len(steps), (
                "of a step its two ends, what is read, and the audit's checksums"
            )
            assert (
                tokens_of([e for e in lane(model, Random(1, truth, model.vocab_size), params) if isinstance(e, Step)])
                == truth
            )


@pytest.mark.parametrize(("name", "dtype"), STEPS, ids=lambda x: str(x).removeprefix("torch."))
def test_steps_of_our_kernels_are_captured(name, dtype, monkeypatch):
    """Tensors handed to kernels would lie on the CPU, or be made by asking the host. The launches themselves write
    nothing here."""
    from engine.target import prepare as module

    monkeypatch.setattr(module, "_check_faithful", lambda *unused, **more: None)
    monkeypatch.setattr(module, "check_agreement", lambda unused: None)
    model = fresh(name, dtype)
    with fake_cuda() as device:
        model = ready(model)
        assert model.kernels.triton
        device.launched.clear()
        events = lane(model, Empty(), SAMPLINGS["temperature"])
        assert events[-1].reason == "length" and {"linear_rows", "_attend", "_best_of_blocks"} <= set(device.launched)
        assert (name == "qwen3_5") == ("_delta_step" in device.launched)
        graph = device.graphs[-1]
        assert (
            graph.num_replays
            and "linear_rows" in graph.names
            and not [n for n in graph.names if "linear.default" in n or "attention" in n]
        )


@pytest.mark.parametrize("params", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_first_kernel_is_tried_and_tokens_are_chosen_by_kernels(params):
    """Every load would go back to torch's kernels; or tokens be chosen by keys of other rows, or from a row before it
    was written."""
    with fake_cuda(run_kernels=True) as device, torch.inference_mode():
        assert reason_against_dtype(CUDA, torch.bfloat16) == "" and device.launched == [
            "_best_of_blocks",
            "_best_of_rows",
        ]
        sampler = Sampler(params, 300, choose(CUDA))
        rows, keys = torch.zeros(3, 300, device=CUDA), sampler.keys(9)
        call = FixedCall(lambda: sampler.pick_rows(rows, keys.index_select(0, torch.arange(4, 7, device=CUDA))), CUDA)
        call()
        for seed in range(3):
            rows.copy_(torch.randn(3, 300, generator=torch.Generator().manual_seed(seed)))
            assert call().tolist() == [sampler(row, 4 + place) for place, row in enumerate(rows.unbind())]


def test_an_older_chip_is_told_why(monkeypatch):
    """It would compile what cannot run there, or say nothing of why steps are slower."""
    monkeypatch.setattr(fake, "CAPABILITY", (7, 5))
    with fake_cuda(run_kernels=True) as device:
        assert reason_against_dtype(CUDA, torch.float16) and not device.launched
        assert reason_against(CUDA) == "the device has compute capability 7.5; they need 8.0"


# Drafters, races, measurements


ON_DEVICE = DeviceEagle3Drafter | DeviceDFlashDrafter | DeviceDraftModelDrafter


@pytest.mark.slow
@pytest.mark.parametrize("kind", LANES)
def test_drafts_are_captured(kind, monkeypatch):
    """The first race with this drafter on a GPU would end in an error, or each of its tokens wait for the host."""
    monkeypatch.setenv(SWITCH, "0")
    with fake_cuda() as device:
        loaded, draft_model = trained(), trained(TRAINED.parent / "draft")
        monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: draft_model)
        for params in SAMPLINGS.values():
            params = replace(params, max_new_tokens=10)
            rule = Coupled(Sampler(params, loaded.prepared.vocab_size, choose(CUDA)))
            pool = GraphPool(CUDA)
            drafter = make(
                LANES[kind],
                DrafterContext(loaded, params, 3, LENGTH, rule.sample, Prompt("", PROMPT), None, silent, pool=pool),
            )
            assert isinstance(drafter, ON_DEVICE) == (kind != "ngram")
            target = StaticTarget(loaded.prepared, LENGTH, WIDTHS, drafter.hidden_layers, pool=pool)
            target.warm(PROMPT[:-1], rule)
            num_graphs = len(device.graphs)
            events = list(decode(target, drafter, rule, PROMPT, Ends(10), 10, 3))
            assert not isinstance(events[-1], Failed) and any(e.drafted for e in events[1:-1])
            assert len(device.graphs) == num_graphs, "all was captured before the first step"
            for k in (3, 2, 1):
                before = device.waits
                assert len(drafter.propose((*PROMPT, *tokens_of(events[1:-1])), None, k).token_ids) <= k
                assert device.waits - before <= 2, "the new tokens go there, the draft comes back"
            if isinstance(drafter, MarginDrafter):
                drafter.propose_while((*PROMPT, *tokens_of(events[1:-1])), None, 3, lambda token, margin: margin > 0.5)


@pytest.mark.slow
def test_a_race_is_run_and_judged(monkeypatch, few_rows, tmp_path):
    """The probe, the times of widths, the bandwidth, the header or the verdict would fail on CUDA alone."""
    monkeypatch.setenv(SWITCH, "0")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(exactness, "MIN_ROWS", 4)
    monkeypatch.setattr(backend, "candidates", lambda *unused, **more: (1, 4))
    monkeypatch.setattr(backend, "ROUNDS", 1)
    with fake_cuda():
        loaded = trained()
        lanes = (
            LaneSpec("plain", width="fastest"),
            LaneSpec("baseline", width=4),
            LaneSpec("drafted", drafter="ngram", k=3, width=4),
        )
        race = TorchRace(
            loaded, RaceSpec(lanes, SamplingParams(temperature=0.7, max_new_tokens=8), audit=True), Prompt("", PROMPT)
        )
        events = list(race.events())
        assert not [e for e in events if isinstance(e.event, Failed)]
        assert race.result()["verdicts"]["drafted"]["kind"] == "identical_bits"
        header = race.header()
        about = {"type": "cuda", "name": "a pretended GPU", "threads": torch.get_num_threads()}
        assert about.items() <= header["device"].items() and header["device"]["cudnn_attention"] == "off"
        assert header["roofline"]["bandwidth_bytes_per_s"] > 0


def test_the_bandwidth_of_a_device_is_measured(monkeypatch):
    """The roofline would be missing from every race on CUDA, or every race fail at it."""
    monkeypatch.setattr(bandwidth, "SECONDS", 60)
    monkeypatch.setattr(bandwidth, "ROUNDS", 1)
    with fake_cuda():
        bandwidth._measured.cache_clear()
        found = bandwidth.measured_bandwidth(CUDA)
        bandwidth._measured.cache_clear()
    assert {name for name, _ in found.samples} >= {"a matrix-vector product of bfloat16", "a sum of float32"}
    assert found.num_bytes == 64 << 20 and found.bytes_per_s == pytest.approx(found.num_bytes * 4 / 1e-3)


def test_prefills_are_warmed_again_in_every_thread_on_cuda_alone(monkeypatch):
    """What CUDA's libraries prepare for a shape belongs to a thread, and every race is a new one: the second race's
    time to its first token would be longer than the first's. On the CPU a warm-up costs a whole prefill, and gains
    nothing."""
    monkeypatch.setenv(SWITCH, "0")
    sizes: list[int] = []
    prefill = StaticTarget._prefill
    monkeypatch.setattr(StaticTarget, "_prefill", lambda target, ids: sizes.append(len(ids)) or prefill(target, ids))

    def warmed_in_two_threads(model: Prepared, device: Any) -> list[list[int]]:
        found = []

        def warm() -> None:
            with device:  # what makes the device one is a thread's own
                torch._C._set_only_lift_cpu_tensors(model.device.type == "cuda")
                for _ in range(2):
                    sizes.clear()
                    StaticTarget(model, 512, (1,)).warm([7] * 290)
                    found.append(sorted(sizes))

        for _ in range(2):  # one after the other: the second has the first one's ident
            thread = threading.Thread(target=warm)
            thread.start()
            thread.join()
        return found

    model = fresh("llama", torch.bfloat16)
    assert warmed_in_two_threads(prepare(copy.deepcopy(model)), nullcontext()) == [[34, 256], [], [], []]
    with fake_cuda() as device:
        assert warmed_in_two_threads(ready(model), device) == [[34, 256], [], [34, 256], []]


def test_attention_of_cudnn_is_off_and_the_record_says_so(monkeypatch):
    """It prepares every shape again in each thread, and a recording would not say which kernels its prompt ran."""
    monkeypatch.setenv(SWITCH, "0")
    torch.backends.cuda.enable_cudnn_sdp(True)
    model = fresh("llama", torch.bfloat16)
    with fake_cuda():
        assert choose(CUDA).about_device()["cudnn_attention"] == "on"
        ready(model)
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert choose(CUDA).about_device()["cudnn_attention"] == "off"
    assert "cudnn_attention" not in choose(torch.device("cpu")).about_device()
