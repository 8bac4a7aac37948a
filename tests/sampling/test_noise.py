"""The noise of a token: decided by seed, position and token alone, uniform and independent, finite."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.core.sampling import noise
from engine.core.sampling import sampler as sampling
from engine.core.sampling.noise import first_argmax, gumbel, gumbel_rows, keys_of, splitmix64, uniform
from engine.core.sampling.sampler import LikelyBits, Sampler
from engine.core.spec import SamplingParams
from tests.helpers.chances import excess
from tests.helpers.tiny import PACKED

SEEDS, POSITIONS = st.integers(0, 2**63 - 1), st.integers(0, 100_000)
DTYPES = [torch.float32, torch.bfloat16]


def arange(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.int32)


@given(SEEDS, POSITIONS, st.lists(st.integers(0, 300_000), min_size=1, max_size=20))
def test_noise_is_decided_by_seed_position_and_token_alone(seed, position, tokens):
    """The same token would be drawn differently in a wider step, another lane or a larger vocabulary; or the sampler's
    own table of token ids be mixed in place, and a second call see other tokens."""
    ids = torch.tensor(tokens, dtype=torch.int32)
    together = gumbel(ids, seed, position)
    gumbel(ids, seed + 1, position + 1)
    alone = torch.cat([gumbel(torch.tensor([t], dtype=torch.int32), seed, position) for t in reversed(tokens)]).flip(0)
    assert torch.equal(together, alone)
    rows = gumbel_rows(ids, keys_of(seed, torch.arange(position - 1, position + 2)))
    assert torch.equal(rows[1], together) and ids.tolist() == tokens


@pytest.mark.parametrize("size", [255, 256, 257, 262_144])
def test_noise_of_a_token_does_not_depend_on_the_vocabulary(size):
    """Vectorised and remainder loops would round differently, so that bits depended on where a token stands."""
    assert torch.equal(gumbel(arange(size), 5, 9)[:250], gumbel(arange(250), 5, 9))
    assert torch.equal(gumbel(arange(size)[3:], 5, 9), gumbel(arange(size), 5, 9)[3:])


@pytest.mark.parametrize(
    ("word", "low", "high"), [(0, 20.0, 24.0), (-1, -4.0, -2.0), (2**31 - 1, 0.3, 0.4), (-(2**31), 0.3, 0.4)]
)
def test_the_extreme_words_give_finite_noise_of_the_right_size(monkeypatch, word, low, high):
    """All zeros or all ones would be log(0); the sign bit would tear the distribution in the middle."""
    monkeypatch.setattr(noise, "_mix", lambda x: torch.full_like(x, word))
    on_device = gumbel_rows(arange(1), torch.zeros(1, 2, dtype=torch.int32))
    on_host = noise._gumbel(torch.from_numpy(noise.units(np.full(64, word, np.int32))))
    assert low < float(on_device) < high and bool((on_host == on_device).all())


@given(SEEDS, POSITIONS, st.integers(1, 4000))
def test_the_hosts_noise_is_the_devices(seed, position, size):
    """A CPU would write other tokens than a GPU from the same logits, and a recording not replay."""
    key = splitmix64(splitmix64(seed) ^ position)
    words = [noise._signed(key, 32), noise._signed(key >> 32, 32)]
    tokens = arange(300_000)[-size:]
    assert torch.equal(uniform(tokens, seed, position), noise._uniform(tokens, *words))


@pytest.mark.parametrize("seed", [0, 1, 2**62])
@pytest.mark.parametrize("along", ["tokens", "positions", "seeds"])
def test_noise_is_uniform(seed, along):
    """Some tokens, or some positions, would be favoured."""
    bins = 1000
    if along == "tokens":
        u = uniform(arange(200_000), seed, 7)
    elif along == "positions":
        u = torch.cat([uniform(arange(200), seed, p) for p in range(1000)])
    else:
        u = torch.cat([uniform(arange(200), seed + s, 3) for s in range(1000)])
    assert abs(excess(torch.histc(u, bins, 0, 1), torch.full((bins,), len(u) / bins))) < 4
    tail = torch.histc(gumbel(arange(262_144), seed, 7), 50, 5, 10)
    expected = 262_144 * torch.exp(-torch.exp(-torch.linspace(5, 10, 51, dtype=torch.float64))).diff().float()
    assert abs(excess(tail, expected)) < 4


def test_neighbours_have_nothing_to_do_with_each_other():
    """Neighbouring seeds, positions or tokens would repeat or shift each other's choices."""
    size = 1 << 14
    base = gumbel(arange(size), 11, 100).double()
    others = {
        **{f"position +{d}": gumbel(arange(size), 11, 100 + d) for d in (1, 2, 3, 64, 256, 65536)},
        **{f"seed +{d}": gumbel(arange(size), 11 + d, 100) for d in (1, 2, 3, 2**32, 2**62)},
        "seed and position swapped": gumbel(arange(size), 100, 11),
        "seed +1, position -1": gumbel(arange(size), 12, 99),
    }
    limit = 5 / math.sqrt(size)
    for name, other in others.items():
        for lag in range(-3, 4):
            pair = torch.stack([base[4:-4], other.double().roll(lag)[4:-4]])
            assert abs(float(torch.corrcoef(pair)[0, 1])) < limit, (name, lag)
    for lag in (1, 2, 3, 16, 64, 256, 1024):
        assert abs(float(torch.corrcoef(torch.stack([base[lag:], base[:-lag]]))[0, 1])) < limit * 1.2, lag


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=50, unique=True))
def test_the_finaliser_is_a_bijection(words):
    """Two seeds would share all their noise."""
    assert len({splitmix64(w) for w in words}) == len(words)


PLACES = st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(1, 3000)
HOW = st.sampled_from([0.05, 1.0, 4.0, 12.0, 40.0]), st.sampled_from([0.3, 0.8, 1.5]), st.sampled_from(DTYPES)


@given(*PLACES, *HOW, st.booleans())
def test_only_tokens_that_cannot_win_go_without_noise(seed, position, size, spread, temperature, dtype, cut):
    """A word with a poor logit and great noise would be passed over: another distribution."""
    row = (torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)
    if cut:
        row[torch.rand(size, generator=torch.Generator().manual_seed(position)) < 0.5] = -torch.inf
        assume(bool((row > -torch.inf).any()))
    sampler = Sampler(SamplingParams(temperature, seed=seed), size, PACKED)
    assert sampler(row, position) == first_argmax(sampler.scores(row, position))


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=200), st.floats(-70, 70), st.sampled_from([0.3, 0.8, 1.5]))
def test_no_column_is_missed_by_its_bits(values, least, temperature):
    """A word in reach would go without its noise: negative values, zeros of either sign, values at the limit itself."""
    row = torch.tensor([*values, 1.0, 0.0, -0.0, -torch.inf], dtype=torch.bfloat16)
    likely = LikelyBits.of(row, temperature)
    scaled = row.float() / temperature
    assert likely is not None and likely.top == pytest.approx(float(scaled.max()))
    for limit in (least, *scaled[:-1].tolist()):
        assert set((scaled >= limit).nonzero()[:, 0].tolist()) <= set(likely.at_least(limit).tolist())
    assert torch.equal(likely.scaled(np.arange(len(row))), scaled)


def test_noise_has_a_bound_and_a_smaller_one_would_be_noticed(monkeypatch):
    """The bound would be a guess, or the test above could not fail."""
    assert -np.log(-np.log1p(-0.5 * 2.0**-32)) < sampling.MAX_NOISE
    row = torch.cat([torch.tensor([12.0]), torch.zeros(4000)])
    sampler = Sampler(SamplingParams(1.0, seed=1), len(row), PACKED)
    whole = [first_argmax(sampler.scores(row, position)) for position in range(300)]
    assert [sampler(row, position) for position in range(300)] == whole and len(set(whole)) > 2
    monkeypatch.setattr(sampling, "MAX_NOISE", 8.0)
    assert [sampler(row, position) for position in range(300)] != whole
