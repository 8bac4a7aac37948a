"""What the page checks in the background, with a local server as the hub: the true reason for every pair, the memory it
needs among them, requests for config.json only, and a page that stays up whatever fails to answer."""

import asyncio
import json
import socket
import threading
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import metadata
from math import prod
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from app.catalogue import hub as checks
from app.catalogue.catalogue import load, on_hub
from app.catalogue.fits import DAMAGED, EXPERTS, NOT_CHECKED, SERVER, _drafter_bytes, reason, repository
from app.catalogue.hub import GATED, NO_CONFIG, NO_HUB, NOT_THERE, Check, look
from app.catalogue.machine import GIB, Machine
from app.jobs.backend import TorchBackend
from app.page.handlers import Handlers
from engine.core.errors import UsageError
from engine.layers.published import num_parameters
from engine.loading.random_targets import shipped_config
from engine.loading.sources import DEFAULT_TARGET
from tests.helpers import FIXTURES
from tests.helpers.hub import TOKEN, ask_at, config_hub
from tests.helpers.machines import CONFIGS, with_gpu
from tests.helpers.pageserver import TARGET
from tests.helpers.published import PUBLISHED

H100 = {"gpu_bytes": int(78.5 * GIB), "gpu_dtype": "bfloat16", "captures_experts": True, "card": "an H100, torch 2"}
EXPERTS_OF = "Qwen/Qwen3-30B-A3B-Instruct-2507", "openai/gpt-oss-20b"
HEADLINE = "Qwen/Qwen3.5-9B"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LARGE_LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
SIZES, QUANTISED = "has attention heads of 256 and of 512", "has quantised weights"
# What an H100 whose page has no token for Llama must say of each; () where it can race it. Terms are worth accepting
# only for a model that fits.
TRUE_REASONS: dict[str, tuple[str, ...]] = {
    **{f"Qwen/Qwen3-{size}": () for size in ("0.6B", "1.7B", "4B", "8B", "30B-A3B-Instruct-2507")},
    **{f"google/gemma-3-{size}": () for size in ("270m", "1b-it", "27b-it")},
    **dict.fromkeys((HEADLINE, "mistralai/Mistral-7B-Instruct-v0.3", "microsoft/Phi-3-mini-4k-instruct"), ()),
    "allenai/Olmo-3-7B-Instruct": (),
    "google/gemma-2-9b-it": ("caps its attention scores", SERVER),
    "google/gemma-4-26B-A4B-it": (SIZES, SERVER),
    "RedHatAI/gemma-4-31B-it-FP8-Dynamic": (SIZES, SERVER),
    LLAMA: ("is gated: accept its terms on the hub", "HF_TOKEN"),
    LARGE_LLAMA: ("131.4 of weights", "of caches for the longest race", "78.5 GiB is free"),
    "openai/gpt-oss-20b": (),
    "openai/gpt-oss-120b": ("needs 221.6 GiB", "more than any one GPU has", SERVER),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": ("more than any one GPU has", SERVER),
    "microsoft/Phi-3-mini-128k-instruct": (),
    "Qwen/Qwen3-8B-AWQ": (f"{QUANTISED} (awq)", SERVER),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": (f"{QUANTISED} (gptq)", SERVER),
    "state-spaces/mamba-2.8b-hf": ("has no attention", SERVER),
    "google-bert/bert-base-uncased": ("is no causal language model but BertForMaskedLM",),
}


def looked(monkeypatch, served, pairs, gpu=lambda: H100):
    """The machine once it has looked at these pairs; which asks for their config.json, and for nothing else."""
    with config_hub(monkeypatch, served, frozenset({LLAMA, LARGE_LLAMA})) as hub:
        machine = look(Machine(gpu=True), pairs, gpu)
    named = {name for target, drafter in pairs for name in (target, repository(drafter)) if name}
    assert set(hub.asked) == {(name, "resolve/main/config.json") for name in named}
    return machine


def test_every_published_model_is_offered_or_refused_for_what_it_is(monkeypatch):
    """The bar: a visitor would wait for tens of GB and then read what was known before; or a model that runs would be
    kept from him. And nothing but config.json may be fetched to know it."""
    machine = looked(monkeypatch, PUBLISHED, [(name, "ngram") for name in PUBLISHED])
    assert set(TRUE_REASONS) == set(PUBLISHED)
    for name, words in TRUE_REASONS.items():
        said = reason(name, "ngram", machine)
        assert bool(said) == bool(words) and all(word in said for word in words), (name, said)
        assert "\n" not in said and not said.endswith(".")
        before_hopper = reason(name, "ngram", replace(machine, captures_experts=False))
        assert before_hopper == (EXPERTS if name in EXPERTS_OF else said), "eager steps, bound by the host"


SERVED = [({}, NOT_THERE), ({HEADLINE: None}, NO_CONFIG), ({HEADLINE: b"{"}, DAMAGED), ({HEADLINE: [1]}, DAMAGED),
          ({HEADLINE: {**PUBLISHED[LLAMA], "hidden_size": "wide"}}, DAMAGED)]  # fmt: skip
TOO_OLD, NO_TORCH = "An H100 is not used: its driver is too old", "No module named 'torch'"
NOT_USED = "*GiB free; torch cannot use this machine's GPU"
GPUS: list[tuple[Any, str, str]] = [
    ({"gpu_bytes": 0}, "*GiB free; torch finds none", ""),
    (ModuleNotFoundError(NO_TORCH), NOT_USED, f"torch failed: ModuleNotFoundError: {NO_TORCH}"),
    (UsageError(TOO_OLD), NOT_USED, TOO_OLD),
    (H100 | {"gpu_bytes": 5 * GIB}, "*; 5.0 GiB is free", ""),
]
# Pair, files on the hub, token, torch's answer about the GPU -> a pattern of the reason, and the note above all pairs.
OFFERS: list[Any] = [
    *(((LLAMA, "ngram"), PUBLISHED, token, H100, GATED, "") for token in (None, "hf_another")),
    ((LLAMA, "ngram"), PUBLISHED, TOKEN, H100, "", ""),
    *(((HEADLINE, "ngram"), served, None, H100, says, "") for served, says in SERVED),
    *(((HEADLINE, "ngram"), CONFIGS, None, gpu, says, note) for gpu, says, note in GPUS),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "served", "token", "gpu", "says", "note"), OFFERS)
def test_a_pair_is_offered_or_refused_for_what_hub_and_torch_say(monkeypatch, pair, served, token, gpu, says, note):
    """A renamed or damaged repository would be found out after the visitor's click and tens of GB; 401 and 403 mean
    that somebody has to do something, and what; not that the hub is away. nvidia-smi sees a GPU that a CPU build of
    torch, a missing torch or a broken driver cannot use."""
    monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    machine = looked(monkeypatch, served, [pair] if gpu is H100 else on_hub(), Mock(side_effect=[gpu]))
    said, catalogue = reason(*pair, machine), load(machine)
    assert fnmatchcase(said, says), said
    assert catalogue.note == note and (gpu is H100 or catalogue.default.target == DEFAULT_TARGET)


def test_a_hub_that_is_away_or_never_answers_leaves_what_ships_to_decide(monkeypatch):
    """Without a network a model with heads of two sizes still has them; a config.json fetched yesterday says nothing of
    the weights: they are not there; and memory alone offers no pair whose config.json nobody has seen. With a broken
    resolver or a silent proxy the page would say `not checked yet` for ever."""
    assert reason(HEADLINE, "ngram", Machine(gpu=True, gpu_bytes=H100["gpu_bytes"])) == NOT_CHECKED
    with config_hub(monkeypatch, CONFIGS) as hub:
        look(Machine(gpu=True), on_hub(), lambda: H100)
    monkeypatch.setattr(checks, "CHECK_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address in (hub.address, f"http://127.0.0.1:{silent.getsockname()[1]}"):
            ask_at(monkeypatch, address)
            started = time.monotonic()
            machine = look(Machine(gpu=True), on_hub(), lambda: H100)
            assert time.monotonic() - started < 2
            assert reason(HEADLINE, "ngram", machine) == NO_HUB
            assert SIZES in reason("google/gemma-4-26B-A4B-it", "ngram", machine)
            assert load(machine).default.target == DEFAULT_TARGET


@pytest.mark.parametrize(("name", "kind"), [("eagle3", "eagle3"), ("dflash", "dflash"), ("zlab", "dflash")])
def test_a_heads_memory_holds_its_weights_and_cache(name, kind):
    """The last gibibyte would be missing once the target is loaded."""
    folder = FIXTURES / "formats"
    target, config = (json.loads((folder / part / "config.json").read_text()) for part in ("target", name))
    with safe_open(folder / name / "model.safetensors", "pt") as file:
        shapes = [file.get_slice(key).get_shape() for key in file.keys() if "2" not in key]  # noqa: SIM118
    short, long = (_drafter_bytes(target, kind, config, length, 2) for length in (0, 1000))
    assert 2 * sum(map(prod, shapes)) <= short < long


@given(st.sampled_from(on_hub()), st.floats(1, 300))
def test_what_is_offered_has_room_for_its_weights_and_more_room_offers_no_less(pair, gib):
    """A pair would be refused although memory suffices, or offered although it does not."""
    if not reason(*pair, with_gpu(gib)):
        assert 2 * num_parameters(shipped_config(pair[0])) < gib * GIB
        assert not reason(*pair, with_gpu(gib + 10))


def test_the_repository_of_a_drafter():
    """The hub would be queried for something that is not a repository, or not for one that is fetched later."""
    assert {repository(name) for name in ("ngram", "ngram:3", "none", "hybrid:ngram+eagle3")} == {""}
    on_the_hub = ("draft_model:a/b", "eagle3:a/b#aux=1,2,3", "hybrid:ngram+dflash:a/b")
    assert {repository(name) for name in on_the_hub} == {"a/b"}


def test_the_page_opens_before_and_changes_after(monkeypatch):
    """A visitor would wait for torch and the hub, or a page opened early never learn of the headline pair. From a cloud
    disk torch's first import takes minutes: the page settled on the small model for its whole life."""
    answer, asked = threading.Event(), []
    with config_hub(monkeypatch, CONFIGS):
        first = load(Machine(gpu=True))
        gpu = lambda: (answer.wait(30), H100)[1]  # noqa: E731
        check = Check(first, lambda: load(look(Machine(gpu=True), on_hub(), gpu)), asked.append)
        handlers = Handlers(first, TorchBackend(), check)
        status = handlers._line()
        assert "first start after an install can take minutes" in asyncio.run(anext(status))
        check.start()
        assert handlers.catalogue.default.target == DEFAULT_TARGET
        assert NOT_CHECKED in {offer.reason for offer in handlers.catalogue.offers}
        answer.set()
        pairs, refused = asyncio.run(handlers.offers())
    assert pairs["value"] == "qwen3-8b-eagle3" == asked[0].default.id == handlers.catalogue.default.id
    assert "attention heads of" in refused and NOT_CHECKED not in refused


def test_the_backends_memory_and_dtype_are_the_devices_own(monkeypatch):
    """`Kernels.free_bytes` of the loading process counts; a page that races on the CPU has no GPU memory at all."""
    assert TorchBackend(device="cpu").gpu() == {"gpu_bytes": 0}
    monkeypatch.setattr("engine.kernels.devices.device_named", lambda name: None)
    members = {"on_host": False, "captures_experts": False, "free_bytes": lambda self: 7}
    members |= {"best_dtype": lambda self: "float32", "about_device": lambda self: {"name": "a card"}}
    monkeypatch.setattr("engine.kernels.choose.choose", lambda device: type("K", (), members)())
    about = {"gpu_bytes": 7, "gpu_dtype": "float32", "captures_experts": False}
    monkeypatch.setattr("app.jobs.backend.commit", lambda: "abc")
    assert TorchBackend().gpu() == about | {"card": f"a card, float32, torch {metadata.version('torch')}, abc"}
    assert replace(Machine(), **TorchBackend("float16").gpu()).card.startswith("a card, float16"), "other times"
    monkeypatch.setattr("engine.kernels.usable.why_unused", lambda: "its driver is too old")
    with pytest.raises(UsageError, match="its driver is too old"):
        TorchBackend().gpu()
    assert TorchBackend(device="cpu")._why_no_gpu() == ""


def test_the_status_line_says_why_the_gpu_is_not_used(monkeypatch):
    """Neither `ready` nor `cannot be used` would tell visitors why their GPU is not used."""
    monkeypatch.setattr("engine.kernels.usable.why_unused", lambda: "An H100 is not used")
    backend = TorchBackend(dtype="float32")
    for target, state in ((TARGET, "ready"), ("no/folder/here", "failed")):
        backend.loader.start(target)
        while (status := backend.loader.status) is None or status.state == "loading":
            time.sleep(0.02)
        assert (status.state, status.note) == (state, "An H100 is not used")


def test_a_check_that_fails_leaves_the_page_as_it_was():
    """One fault in it would leave every visitor before a page that looks for ever."""
    first, asked = load(Machine(gpu=True)), []
    check = Check(first, lambda: 1 / 0, asked.append)  # type: ignore[arg-type, return-value]
    check.start()
    handlers = Handlers(first, TorchBackend(), check)
    asyncio.run(handlers.checked())
    assert handlers.catalogue is first
    while not asked:
        time.sleep(0.01)
