"""The roofline: bytes that a step must read, how fast this device reads, and what is said about the two."""

import io
import time
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import nn
from transformers import Gemma3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from app.figures.charts import charts
from engine.analysis.roofline import roofline
from engine.cli.report import print_report
from engine.core.errors import RaceError
from engine.core.events import LaneEvent, Step
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.hardware import bandwidth
from engine.hardware.bandwidth import SECONDS, kv_bytes, measured_bandwidth, step_bytes, weight_bytes
from engine.loading.loading import load
from engine.recordings.recording import Recording, checked
from engine.recordings.recording import build as build_recording
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers.races import events_of, fixed_race
from tests.helpers.tiny import BASE, MIXED, NAMES, TRAINED, WINDOW, build, fresh, prepared
from tests.helpers.tiny import threads as threads_of

CPU = torch.device("cpu")


def all_bytes(model: nn.Module) -> int:
    return sum(p.nbytes for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_reads_every_weight_once_and_one_row_of_the_embedding(name, dtype):
    """The share would be of bytes that nobody reads, or leave some out: a tied embedding counts once, as the head."""
    model = fresh(name, dtype)
    tied = model.config.tie_word_embeddings
    assert tied == isinstance(model, Gemma3ForCausalLM), "one of the tiny models must be tied, one not"
    wanted = all_bytes(model) - (0 if tied else model.get_input_embeddings().weight.nbytes)
    assert weight_bytes(model) == wanted
    for packed in (False, True):
        ready = prepared(name, dtype, packed)
        said = "packing moves weights, it neither adds nor saves any"
        assert step_bytes(ready, 0) == weight_bytes(ready.model) == wanted, said


def test_a_window_bounds_what_a_layer_reads():
    """A sliding layer would count keys that it never looks at, and the share of a long context would be too high."""
    row = 2 * 1 * 16 * 4
    for length in (0, 1, WINDOW, WINDOW + 1, 1000):
        sliding, full = MIXED.count("sliding_attention"), MIXED.count("full_attention")
        assert kv_bytes(prepared("gemma3"), length) == row * (full * length + sliding * min(length, WINDOW))
        assert kv_bytes(prepared("mistral"), length) == 2 * row * 3 * min(length, WINDOW)
        assert kv_bytes(prepared("llama"), length) == 2 * row * 3 * length
        llama = prepared("llama")
        assert step_bytes(llama, length) - step_bytes(llama, 0) == kv_bytes(llama, length)


def test_weights_that_share_a_storage_are_read_once():
    """A model whose projections are fused would count them twice: as the whole and as its parts."""
    model = fresh("llama")
    before, mlp = weight_bytes(model), model.model.layers[0].mlp
    num = mlp.gate_proj.out_features
    fused = nn.Linear(mlp.gate_proj.in_features, 2 * num, bias=False)
    mlp.gate_proj.weight, mlp.up_proj.weight = (nn.Parameter(part) for part in fused.weight.detach().split(num))
    mlp.gate_up = fused
    assert weight_bytes(model) == before


def test_experts_that_a_token_does_not_visit_are_not_read():
    """A mixture of experts would seem to use several times the bandwidth there is."""
    routed = {"moe_intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 2}
    model = build(Qwen3MoeForCausalLM, Qwen3MoeConfig(**BASE, **routed, vocab_size=64))
    experts = sum(p.nbytes for name, p in model.named_parameters() if ".experts." in name)
    others = all_bytes(model) - model.get_input_embeddings().weight.nbytes - experts
    assert experts > 0 and weight_bytes(model) == others + experts * 2 // 8


def test_the_bandwidth_is_measured_once_in_bounded_time_and_leaves_the_threads_alone():
    """Every race would wait for it, or run its steps with the threads of the measurement."""
    threads = torch.get_num_threads()
    started = time.perf_counter()
    with threads_of(1):
        speed = measured_bandwidth(CPU)
    waited = time.perf_counter() - started
    assert torch.get_num_threads() == threads and waited < SECONDS + 2  # what a busy machine may add to the last kernel
    assert speed.samples[0][1] == speed.bytes_per_s and speed.bytes_per_s == max(rate for _, rate in speed.samples)
    assert 1e8 < speed.bytes_per_s < 1e13 and speed.num_bytes >= 2**26 and speed.samples[0][0] in speed.how
    again = time.perf_counter()
    with threads_of(1):
        assert measured_bandwidth(CPU) is speed and time.perf_counter() - again < 0.01


def test_a_kernel_that_fails_is_left_out_and_where_all_do_the_bandwidth_is_missing(monkeypatch):
    """A race would end for the sake of an ornament."""
    fails = Mock(side_effect=RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED"))
    monkeypatch.setattr(bandwidth, "ROUNDS", 2)
    kernels, buffer = Mock(seconds=lambda call: (call(), 0.5)[1]), torch.zeros(4, 4)
    kernels.readers.return_value = {"a": fails, "b": lambda: None}
    speed = bandwidth._measure(kernels, buffer, time.perf_counter())
    assert speed.samples == (("b", 128.0),)
    kernels.readers.return_value = {"a": fails}
    with pytest.raises(RaceError, match="no kernel can read"):
        bandwidth._measure(kernels, buffer, time.perf_counter())


def lane(*seconds: float, name: str = "plain") -> list[LaneEvent]:
    return [LaneEvent(name, 0.0, Step(i, i, (), 0, (1,), 0.0, s, 1)) for i, s in enumerate(seconds)]


def header(num_bytes: float = 5e8, bandwidth: float = 4e10) -> dict:
    return {"roofline": {"bytes_per_step": num_bytes, "bandwidth_bytes_per_s": bandwidth, "how": "a sum"}}


FIGURES_OF_A_RACE = header(1e6, 1e8)["roofline"]


def test_the_sentence_says_what_bounds_a_step():
    """A visitor would be told that memory bounds what overhead bounds, or of more than all of the bandwidth."""
    bound = roofline(header(), lane(0.010, 0.020, 0.500))
    assert "20.0 ms" in bound and "62 % of the memory bandwidth" in bound
    assert "so plain decoding could be at most 1.6 times as fast" in bound
    slow = roofline(header(), lane(0.050))
    assert "25 % of the memory bandwidth" in slow
    assert "something else bounds it" in slow and "at most" not in slow
    cached = roofline(header(), lane(0.005))
    assert "held in cache" in cached and "%" not in cached


@given(st.floats(1e-7, 1e3), st.floats(1, 1e13), st.floats(1e6, 1e13))
def test_no_share_is_ever_above_100_percent(step_s, num_bytes, bandwidth):
    """A visitor would read of 130 % of a bandwidth."""
    bound = roofline(header(num_bytes, bandwidth), lane(step_s))
    assert bound.endswith(".")
    if "%" in bound:
        assert int(bound.split(" %")[0].split()[-1]) <= 100


FIGURES = (
    st.none() | st.booleans() | st.text(max_size=3) | st.floats() | st.integers() | st.lists(st.integers(), max_size=2)
)


@given(
    FIGURES | st.dictionaries(st.sampled_from(["bytes_per_step", "bandwidth_bytes_per_s", "how"]), FIGURES),
    st.lists(st.floats(0, 1e7), max_size=3),
)
def test_a_header_from_a_stranger_says_nothing_or_a_sentence(figures, seconds):
    """A recording is a stranger's file: whatever stands there must not break the page or the report."""
    bound = roofline({"roofline": figures}, lane(*seconds))
    assert "inf" not in bound and "nan" not in bound


@pytest.mark.parametrize("figures", [{}, {"roofline": FIGURES_OF_A_RACE}], ids=["before", "now"])
def test_the_report_and_the_page_say_it_where_it_was_recorded(figures):
    """The figures would be recorded and never read; or older recordings be refused, or shown with made-up figures."""
    recording, out = fixed_race() | figures, io.StringIO()
    bound = roofline(recording, events_of(recording))
    print_report(Console(file=out, width=400), Recording.of(recording))
    report, page = out.getvalue().replace("\n", ""), charts(Recording.of(recording))[1].sentence
    assert bool(bound) == bool(figures) == ("memory bandwidth" in report) == ("memory bandwidth" in page)
    assert bound in report and bound in page


def test_a_race_records_its_roofline():
    """A recording could not be judged by it later, nor shown with it."""
    loaded = load(str(TRAINED), "float32", "cpu")
    spec = RaceSpec((LaneSpec("plain", width="fastest"), LaneSpec("baseline")), SamplingParams(max_new_tokens=8))
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, "def main():", False))
    events = list(race.events())
    recording = checked(build_recording(race.header(), events, race.result()).text.encode())
    figures = recording["roofline"]
    assert figures["bytes_per_step"] == step_bytes(loaded.prepared, len(race.prompt.token_ids) + 4)
    assert figures["bandwidth_bytes_per_s"] == measured_bandwidth(CPU).bytes_per_s and figures["how"]
    assert roofline(recording, events)
