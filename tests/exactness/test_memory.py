"""What is cached is whole or absent, whatever happens to the disk; what the probe found is believed only where nothing
has changed; and how close a choice was where two lanes part."""

import json
import logging
import os
from dataclasses import replace
from functools import cache
from itertools import count

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.cache import ENVIRONMENT_VARIABLE, cache_dir, read_json, write_json
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.exactness import probe as exactness
from engine.exactness.probe import explain, fingerprint, probe, probe_cached
from engine.exactness.widths import WidthClasses
from engine.runner.target import StaticTarget
from tests.helpers.tiny import LENGTH, PACKED, prepared, threads

probed_llama = cache(lambda length, widths: probe(StaticTarget(prepared("llama"), length, widths)))


@pytest.fixture
def probes(monkeypatch, tmp_path, few_rows) -> list[int]:
    """An empty cache, and a list that grows by one with every probe (computed once for all tests here)."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    done: list[int] = []

    def counted(target, progress, operators):
        done.append(1)
        return probed_llama(target.cache_length, target.widths)

    monkeypatch.setattr(exactness, "probe", counted)
    return done


@given(
    st.lists(st.sets(st.integers(1, 64), min_size=1).map(sorted).map(tuple), min_size=1, max_size=3),
    st.sets(st.integers(1, 64)).map(sorted).map(tuple),
)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_classes_are_read_back_as_they_were_written(monkeypatch, tmp_path, classes, unstable):
    """Unstable widths would come back as exact ones."""
    taken: set[int] = set()
    apart = tuple(c for c in (tuple(w for w in c if w not in taken and not taken.add(w)) for c in classes) if c)
    partition = WidthClasses(apart, tuple(w for w in unstable if w not in taken))
    widths = sorted([*[w for c in partition.classes for w in c], *partition.unstable])
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / str(hash(partition))))
    monkeypatch.setattr(exactness, "probe", lambda *arguments, **more: partition)
    assert probe_cached(StaticTarget(prepared("llama"), LENGTH, widths), "digest") == partition
    monkeypatch.setattr(exactness, "probe", lambda *arguments: pytest.fail("it was probed again"))
    assert probe_cached(StaticTarget(prepared("llama"), LENGTH, widths), "digest") == partition


def test_operators_are_probed_once_for_all_lengths(monkeypatch, tmp_path, few_rows):
    """Every new length would probe all linears again, or classes of another model be believed."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    asked: list[int] = []
    right = exactness.operator_classes
    monkeypatch.setattr(exactness, "operator_classes", lambda *given: asked.append(1) or right(*given))
    lengths = count(LENGTH, 16)

    def num_probes(digest: str) -> int:
        """How often operators were probed for one more length."""
        asked.clear()
        length = next(lengths)
        classes = probe_cached(StaticTarget(prepared("llama"), length, (2, 4)), digest)
        num = len(asked)
        assert classes == probe(StaticTarget(prepared("llama"), length, (2, 4)))
        return num

    assert [num_probes("one"), num_probes("one"), num_probes("another"), num_probes("one")] == [1, 0, 1, 0]
    files = {path: json.loads(path.read_text()) for path in cache_dir().glob("widths-*.json")}
    about = {path: (value["fingerprint"]["digest"], value["fingerprint"]["length"]) for path, value in files.items()}
    (path,) = (path for path, known in about.items() if known == ("one", None))
    for damage in ("cut short", "another machine's", "a width missing"):
        path.write_text(DAMAGE[damage](json.dumps(files[path]), files[path]))
        assert num_probes("one") == 1 and num_probes("one") == 0, damage


@given(
    st.lists(st.sets(st.integers(1, 64), min_size=1, max_size=4).map(sorted), min_size=1, max_size=5),
    st.dictionaries(st.integers(1, 64), st.integers(0, 2)),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_widths_asked_for_one_after_the_other_are_judged_as_together(monkeypatch, tmp_path, asked, kernels):
    """Another k would probe all operators again, or a width join a class that it was never compared with."""

    def classes_of(prepared, widths, *_) -> WidthClasses:
        by_kernel = [tuple(w for w in widths if kernels.get(w, 0) == kernel) for kernel in range(3)]
        return WidthClasses(tuple(sorted(filter(None, by_kernel[:2]))), by_kernel[2])

    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / str(hash((str(asked), str(kernels))))))

    def check() -> None:
        for widths in asked:
            partition, wanted = exactness._operators(prepared("llama"), "digest", widths), classes_of(None, widths)
            assert (sorted(partition.classes), partition.unstable) == (sorted(wanted.classes), wanted.unstable)

    monkeypatch.setattr(exactness, "operator_classes", classes_of)
    check()
    monkeypatch.setattr(exactness, "operator_classes", lambda *given: pytest.fail("they were probed again"))
    check()


DAMAGE = {
    "cut short": lambda text, value: text[: len(text) // 2],
    "no classes": lambda text, value: json.dumps({k: v for k, v in value.items() if k != "classes"}),
    "classes of words": lambda text, value: json.dumps({**value, "classes": [["one"]]}),
    "a width missing": lambda text, value: json.dumps({**value, "classes": [[1, 2]], "unstable": []}),
    "a width twice": lambda text, value: json.dumps({**value, "classes": [[1, 2, 4]], "unstable": [4]}),
    "another machine's": lambda text, value: json.dumps(
        {**value, "fingerprint": {**value["fingerprint"], "threads": 77}}
    ),
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_memory_is_probed_anew_and_mended(probes, damage):
    """A broken file in the cache would end every race, or promise widths that were never judged."""
    first = probe_cached(StaticTarget(prepared("llama"), LENGTH, (1, 2, 4)), "digest")
    (path,) = cache_dir().glob("widths-*.json")
    path.write_text(DAMAGE[damage](path.read_text(), json.loads(path.read_text())))
    for _ in range(2):
        assert probe_cached(StaticTarget(prepared("llama"), LENGTH, (1, 2, 4)), "digest") == first
    assert len(probes) == 2


def test_whatever_may_change_bits_is_in_the_fingerprint(monkeypatch):
    """Classes found with one thread would be believed with two."""
    model = prepared("llama", torch.float32, False)
    kinds = [
        fingerprint(model, "a", 256, (1, 4)),
        fingerprint(model, "b", 256, (1, 4)),
        fingerprint(model, "a", 512, (1, 4)),
        fingerprint(model, "a", None, (1, 4)),
        fingerprint(model, "a", 256, (1, 8)),
        fingerprint(prepared("llama", torch.bfloat16, False), "a", 256, (1, 4)),
        fingerprint(replace(model, kernels=PACKED), "a", 256, (1, 4)),
    ]
    with threads(torch.get_num_threads() + 1):
        kinds.append(fingerprint(model, "a", 256, (1, 4)))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.0.0")
        kinds.append(fingerprint(model, "a", 256, (1, 4)))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    kinds.append(fingerprint(model, "a", 256, (1, 4)))
    texts = [json.dumps(kind, sort_keys=True) for kind in kinds]
    assert len(set(texts)) == len(texts) and kinds[-1] == fingerprint(model, "a", 256, (1, 4))


# How close a choice was


@given(
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.7, 2.0]),
    st.sampled_from([0, 5]),
    st.sampled_from([1.0, 0.8]),
    st.floats(1e-4, 1.0),
)
def test_the_margin_is_what_separates_the_two_choices(seed, temperature, top_k, top_p, noise):
    """A clear difference would be excused as a near tie, or the other way about; NaN, which is above no limit, too."""
    generator = torch.Generator().manual_seed(seed)
    row_a = torch.randn(64, generator=generator)
    row_b = row_a + noise * torch.randn(64, generator=generator)
    possible = torch.arange(64) < 64 - seed % 3  # others are excluded, by -inf
    row_a, row_b = (row.masked_fill(~possible, -torch.inf) for row in (row_a, row_b))
    sampler = Sampler(SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed), 64, PACKED)
    tokens = (sampler(row_a, 3), sampler(row_b, 3))
    margin, rounding, share = explain(sampler, row_a, row_b, 3, tokens)
    scale = temperature or 1.0
    difference = float((row_a - row_b)[possible].square().mean().sqrt())
    assert rounding == pytest.approx(difference / scale, rel=1e-4)
    assert share == pytest.approx(difference / float(row_a[possible].std()), rel=1e-4)
    assert margin >= 0
    if tokens[0] != tokens[1] and top_k == 0 and top_p == 1.0:
        # What is no more than rounding apart can have been moved by no more than the rows differ at the two candidates.
        assert 0 < margin <= float((row_a - row_b)[list(tokens)].abs().sum() / scale) + 1e-4


# The cache itself


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    """The default model would land in a home folder that is too small, although another was asked for."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    assert cache_dir() == tmp_path / ".cache" / "photofinish"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "photofinish"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "~/own")
    assert cache_dir() == tmp_path / "own"


def test_a_cache_that_cannot_be_written_fails_nothing(tmp_path, monkeypatch, caplog):
    """A read-only home folder would end every race; an interrupted write leave half a value."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING):
        write_json("value.json", {"a": 1})
    assert "cannot keep value.json" in caplog.text and read_json("value.json") is None

    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    write_json("value.json", {"a": 1})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    write_json("value.json", {"a": 2})
    assert read_json("value.json") == {"a": 1} and [p.name for p in (tmp_path / "cache").iterdir()] == ["value.json"]
