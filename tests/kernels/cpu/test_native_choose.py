"""The compiled choice of a token: what torch's arithmetic chooses, for any row, noise and temperature."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.core.errors import RaceError
from engine.core.interfaces import Draft
from engine.core.sampling.accept import Coupled
from engine.core.sampling.noise import gumbel
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.kernels.cpu.build import has
from engine.kernels.cpu.kernels import CpuKernels
from tests.helpers.native_kernels import on
from tests.helpers.tiny import PACKED

pytestmark = pytest.mark.skipif(not has("photofinish_choose"), reason="there is no compiled kernel for it here")
TEMPERATURES = [0.0, 0.001, 0.05, 0.3, 0.8, 1.5, 20.0, 100.0]
SIZES = [1, 2, 15, 16, 17, 31, 32, 33, 511, 512, 513, 1000, 4096, 5000]
SEEDS = st.integers(0, 2**63 - 1)
POSITIONS = st.integers(0, 2**40)


def samplers(
    temperature: float, seed: int, size: int, tokens: Tensor | None = None, **params
) -> tuple[Sampler, Sampler]:
    """With the kernels and without."""

    def made() -> Sampler:
        sampler = Sampler(SamplingParams(temperature, seed=seed, **params), size, PACKED)
        return sampler if tokens is None else sampler.among(tokens)

    native = made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuKernels, "chooser", lambda *_: None)
        return native, made()


@st.composite
def rows(draw, sizes=SIZES) -> Tensor:
    """bfloat16 rows: as of models, flat, of few values, of one, all negative, with infinities, zeros of either sign."""
    size = draw(st.sampled_from(sizes))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    row = torch.randn(size, generator=generator) * draw(st.sampled_from([0.0, 1e-3, 0.3, 1.0, 4.0, 30.0, 1e3])) + draw(
        st.sampled_from([0.0, 0.0, -40.0, 15.0, -3e4])
    )
    if draw(st.booleans()):
        row = (row / 8).round() * 8
    odd = [-torch.inf, torch.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38]
    for value in draw(st.lists(st.sampled_from(odd), max_size=3)):
        row[torch.rand(size, generator=generator) < draw(st.sampled_from([0.01, 0.6]))] = value
    return row.bfloat16()


@settings(max_examples=400)
@given(rows(), SEEDS, POSITIONS, st.sampled_from(TEMPERATURES), st.none() | st.integers(0, 2**31))
def test_it_chooses_what_torch_chooses(row, seed, position, temperature, shuffled):
    """A machine with a compiler would write other tokens than one without: where equal logits, common in bfloat16, or
    zeros of two signs are decided by a lane of a vector, or a head over a part of the vocabulary gets the noise of
    other words."""
    generator = torch.Generator().manual_seed(shuffled or 0)
    tokens = None if shuffled is None else torch.randperm(250_000, generator=generator)[: len(row)]
    native, stock = samplers(temperature, seed, len(row), tokens)
    before = row.clone()
    assert native(row, position) == stock(row, position)
    assert temperature or native.at_once(row[None], (), position), "the first of equal maxima is no close choice"
    assert torch.equal(row.view(torch.int16), before.view(torch.int16)), "its checksum is taken afterwards"


@pytest.mark.parametrize("spread", [0.05, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
def test_over_a_real_vocabulary_it_decides_and_decides_alike(spread, temperature):
    """It would leave every row to torch, and be worth nothing; or part from it where thousands of words count."""
    size = 262_144
    native, stock = samplers(temperature, 7, size)
    row = (torch.randn(size, generator=torch.Generator().manual_seed(1)) * spread).bfloat16()
    known = [native.at_once(row[None], (), position) for position in range(8)]
    assert all(known), "this row is none that rounding could decide"
    assert [token for (token,) in known] == [stock(row, position) for position in range(8)]


@given(
    rows([300, 1000]),
    SEEDS,
    POSITIONS,
    st.sampled_from([0.3, 0.8, 1.5]),
    st.integers(0, 20),
    st.sampled_from([0.5, 0.9, 1.0]),
)
def test_top_k_and_top_p_are_left_to_torch(row, seed, position, temperature, top_k, top_p):
    """It would choose words that were cut away."""
    assume(bool((row > -1e38).any()) and float(row.max()) < 1e38)
    native, stock = samplers(temperature, seed, len(row), top_k=top_k, top_p=top_p)
    assert native(row, position) == stock(row, position)
    assert not native.is_filtered or native.at_once(row[None], (), position) == []


@given(SEEDS, POSITIONS, st.integers(0, 2**31), st.integers(2, 600))
def test_where_two_scores_are_as_good_as_equal_torchs_bits_decide(seed, position, shuffled, size):
    """Two logarithms that round differently would flip a token in a billion, and nobody would ever find out why."""
    equal = samplers(0.8, seed, 0, torch.zeros(size, dtype=torch.int32))[0]
    assert equal.at_once(torch.zeros(1, size).bfloat16(), (), position) == [], "a choice that is too close is not made"
    generator = torch.Generator().manual_seed(shuffled)
    row = torch.randn(size, generator=generator).bfloat16()
    noise = gumbel(torch.arange(size, dtype=torch.int32), seed, position)
    first = int((row.float() + noise).argmax())
    # at these temperatures another column has the very same score
    steps = (row[first].double() - row.double()) / (noise.double() - noise[first].double())
    possible = steps[(steps > 1e-3) & (steps < 100)]
    temperature = float(possible.min()) if len(possible) else 1.0
    for factor in (1.0, 1 - 1e-7, 1 + 1e-7, 1 - 1e-6, 1 + 1e-6, 1 - 1e-4, 1 + 1e-4):
        native, stock = samplers(min(100.0, temperature * factor), seed, size)
        assert native(row, position) == stock(row, position)


@pytest.mark.parametrize("size", [1, 40, 5000])
@pytest.mark.parametrize("nan", [0x7F81, 0x7FC0, 0x7FFF, -0x7F, -0x40, -1])  # of either sign
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_numbers_are_an_error_wherever_they_stand(size, nan, temperature):
    """A model that overflows would write some token for ever; to the scan, which sees integers, a NaN is a number."""
    native, _ = samplers(temperature, 1, size)
    for place in {0, size // 2, size - 1}:
        row = torch.randn(size, generator=torch.Generator().manual_seed(0)).bfloat16()
        row.view(torch.int16)[place] = nan
        assert row.isnan().sum() == 1 and native.at_once(row[None], (), 0) == []
        with pytest.raises(RaceError, match="NaN"):
            native(row, 0)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@given(data=st.data())
def test_many_rows_at_once_are_judged_as_one_after_the_other(temperature, data):
    """More or fewer tokens of a draft would stand, or rows behind a rejection count; also where torch decides one."""
    size, num = 600, data.draw(st.integers(1, 9))
    logits = (
        torch.randn(num, 2 * size, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))) * 2
    ).bfloat16()[:, :size]  # rows lie apart
    native, stock = samplers(temperature, 11, size)
    position = data.draw(POSITIONS)
    if data.draw(st.booleans()):
        logits[data.draw(st.integers(0, num - 1))] = torch.inf  # its first column is chosen, by torch
    own = [stock(row, position + i) for i, row in enumerate(logits)]
    right = data.draw(st.integers(0, num - 1))
    draft = (*own[:right], *[(token + 1) % size for token in own[right : num - 1]])
    logits[right + 1 :] = torch.nan
    for sampler in (native, stock):
        acceptance = Coupled(sampler)(Draft(draft), logits, position)
        assert acceptance.num_accepted == right and acceptance.token_ids == tuple(own[: right + 1])


@pytest.mark.parametrize(
    "row",
    [torch.randn(50), torch.randn(50).half(), torch.randn(50, 2).bfloat16()[:, 0]],
    ids=["float32", "float16", "strided"],
)
def test_other_rows_are_left_to_torch(row):
    """Their bits would be read as something else."""
    native, stock = samplers(0.8, 1, 50)
    assert native.at_once(row[None], (), 3) == [] and native(row, 3) == stock(row, 3)


def test_without_kernels_torch_chooses_the_same():
    """A machine without a compiler, or with AVX2 alone, could not sample at all, or would write another text."""
    row, stock = torch.randn(300, generator=torch.Generator().manual_seed(0)).bfloat16(), samplers(0.8, 1, 300)[1]
    with on("AVX2"):
        assert not has("photofinish_choose") and PACKED.picks(torch.arange(300), 0.8, 1) is None
        sampler = Sampler(SamplingParams(0.8, seed=1), 300, PACKED)
    assert sampler.at_once(row[None], (), 0) == [] and sampler(row, 0) == stock(row, 0)
