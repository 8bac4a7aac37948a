"""Triton linears for few rows: the right numbers, and a row's bits a function of that row alone. Run by Triton's
interpreter, on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.exactness.operators import same_bits
from engine.kernels.cuda import available as choice
from engine.kernels.cuda.linear import Added, GpuLinear
from engine.kernels.cuda.runtime import MOST_ROWS
from engine.kernels.cuda.tiles import Config
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on

EPS = 1e-6
ROUNDING = {torch.bfloat16: 1.01 * 2.0**-7, torch.float16: 1.01 * 2.0**-10}
"""A whole last bit: the interpreter cuts to bfloat16 where a GPU rounds."""
SHAPES = [  # n, k, act, bias, config
    (64, 128, None, False, Config(32, 64, 4, 3)),
    (70, 48, None, True, Config(32, 64, 4, 3)),
    (33, 208, None, True, Config(16, 64, 2, 3, split_k=4)),
    (96, 256, None, False, Config(32, 64, 4, 3, split_k=2, weights_first=True)),
    (48, 144, "silu", False, Config(32, 64, 4, 3)),
    (40, 288, "gelu_tanh", True, Config(16, 64, 2, 3, split_k=2)),
    (24, 80, "silu", True, Config(16, 64, 2, 3, weights_first=True)),
]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def linear_of(shape: tuple, dtype: torch.dtype = torch.bfloat16) -> GpuLinear:
    n, k, act, bias, config = shape
    torch.manual_seed(n)
    linear = GpuLinear(nn.Linear(k, n if act is None else 2 * n, bias).to(dtype).requires_grad_(False), act)
    linear.config = config
    return linear


def random(*size: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact(linear: GpuLinear, x: Tensor) -> Tensor:
    """In float64, never rounded."""
    products = F.linear(x.double(), linear.weight.double(), None if linear.bias is None else linear.bias.double())
    if linear.act is None:
        return products
    gate, up = products.chunk(2, -1)
    return (F.silu(gate) if linear.act == "silu" else F.gelu(gate, approximate="tanh")) * up


def assert_near(found: Tensor, expected: Tensor, roundings: int = 1) -> None:
    error = (found.double() - expected).abs()
    assert (error <= roundings * ROUNDING[found.dtype] * expected.abs() + 2e-6).all(), error.max()


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@each_shape
def test_right_numbers(shape: tuple, dtype: torch.dtype) -> None:
    """A lost block of inputs or outputs, a bias or part of a split added twice or not at all, gates taken for values.
    Twice: the counters of a split must be zeros again."""
    linear = linear_of(shape, dtype)
    x = random(2, 3, shape[1], dtype=dtype)
    for _ in range(2):
        found = linear(x)
        assert found.shape == (2, 3, shape[0]) and found.dtype == dtype
        assert_near(found, exact(linear, x))
        assert not linear.arrivals.any()


def stages(linear: GpuLinear, following: GpuLinear | None, x: Tensor, residual: Tensor, scale: Tensor) -> list[Tensor]:
    """Everything that rows [m, k] become, a list of [m, ...]."""
    found = [linear(x)]
    if following is not None:
        added = linear.add_to(x, residual, scale)
        found += [added.rows, added.scaled, added.squares[: len(x)], following.normed(added, EPS)]
    return found


@pytest.mark.slow
@each_shape
def test_bits_of_a_row_are_its_own(shape: tuple) -> None:
    """One binary for every number of rows, and nothing of a neighbour in a row, NaN least of all: else speculation
    changes tokens."""
    n, k = shape[:2]
    linear = linear_of(shape)
    following = None if linear.act is not None or n % 16 else linear_of((48, n, "silu", True, Config(16, 64, 2, 3)))
    x, residual, scale = random(MOST_ROWS, k), random(MOST_ROWS, n, seed=1), 1 + 0.1 * random(n, seed=2).float()
    expected = stages(linear, following, x, residual, scale)
    for num_rows, place, row in ((1, 0, 11), (2, 1, 0), (5, 3, 15), (8, 0, 7), (MOST_ROWS, 15, 4)):
        rows, others = random(num_rows, k, seed=row), random(num_rows, n, seed=row)
        rows[::2], others[::2] = torch.nan, torch.inf
        rows[place], others[place] = x[row], residual[row]
        found = stages(linear, following, rows, others, scale)
        assert all(same_bits(a[place], b[row]) for a, b in zip(found, expected, strict=True)), (num_rows, place)


@each_shape
def test_bits_do_not_depend_on_when_a_launch_begins(shape: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights asked for early from behind the end of the weights, or put where sums are. Off unless asked for: it was
    never timed on a GPU."""
    monkeypatch.delenv(choice.EARLY, raising=False)
    linear = linear_of(shape)
    assert not linear.early
    monkeypatch.setenv(choice.EARLY, "1")
    early = linear_of(shape)
    assert early.early
    x, residual, scale = random(5, shape[1]), random(5, shape[0], seed=1), torch.ones(shape[0])
    assert same_bits(linear(x), early(x))
    if linear.act is None:
        added, added_early = (each.add_to(x, residual, scale) for each in (linear, early))
        assert same_bits(added.rows, added_early.rows) and same_bits(added.squares[:5], added_early.squares[:5])


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[2] is None], ids=str)
def test_added_and_normed(shape: tuple, dtype: torch.dtype) -> None:
    """A residual that is added before it may be, a norm over other rows than those that went on, or a factor that
    misses a part or the bias's turn."""
    linear = linear_of(shape, dtype)
    n, k = shape[:2]
    x, residual, scale = (
        random(5, k, dtype=dtype),
        random(5, n, dtype=dtype, seed=1),
        1 + 0.1 * random(n, seed=2).float(),
    )
    added = linear.add_to(x, residual, scale)
    if dtype is torch.float16:  # which the interpreter rounds as a GPU does
        assert same_bits(added.rows, linear(x) + residual) and same_bits(
            added.scaled, (added.rows.float() * scale).to(dtype)
        )
    step = ROUNDING[dtype] * exact(linear, x).abs()  # of the product, which is rounded before it is added
    expected = exact(linear, x) + residual.double()
    assert ((added.rows.double() - expected).abs() <= step + ROUNDING[dtype] * expected.abs() + 2e-6).all()
    assert_near(added.scaled, added.rows.double() * scale)
    sums = added.rows.double().square().sum(-1)
    torch.testing.assert_close(added.squares[:5].double().sum(-1), sums, rtol=1e-5, atol=0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_normed_is_the_linear_of_normed_rows(shape: tuple) -> None:
    """A mean over the wrong number of inputs, the factor after the bias or the activation, or parts beyond those there
    are."""
    linear = linear_of(shape, torch.float16)
    k = shape[1]
    rows, scale = 3 * random(6, k, dtype=torch.float16), 1 + 0.1 * random(k, seed=2).float()
    squares = torch.full((MOST_ROWS, 3), torch.nan)
    squares[:6] = torch.stack([part.float().square().sum(-1) for part in rows.split(-(-k // 3), -1)], -1)
    scaled = (rows.float() * scale).to(rows)
    factor = (rows.double().square().mean(-1, keepdim=True) + EPS).rsqrt()
    assert_near(linear.normed(Added(rows, scaled, squares), EPS), exact(linear, scaled.double() * factor), 2)


def test_prefill_is_torchs() -> None:
    """More rows than a tile would be lost."""
    for shape in (SHAPES[1], SHAPES[5]):
        linear = linear_of(shape)
        assert_near(linear(random(MOST_ROWS + 1, shape[1])), exact(linear, random(MOST_ROWS + 1, shape[1])), 4)


def test_weights_are_shared() -> None:
    """A copy would double the memory, and miss what is loaded later."""
    stock = nn.Linear(64, 32).bfloat16()
    linear = GpuLinear(stock)
    assert linear.weight is stock.weight and linear.bias is stock.bias
    assert set(linear.state_dict()) == {"weight", "bias"}


@pytest.mark.parametrize(
    "linear", [nn.Linear(64, 32), nn.Linear(56, 32).bfloat16(), nn.Linear(64, 33).bfloat16()], ids=str
)
def test_refuses_what_it_cannot_do(linear: nn.Linear) -> None:
    """float32 would be cut to TF32, and rows of other lengths are not aligned."""
    with pytest.raises(ValueError, match=r"a linear of|33 outputs"):
        GpuLinear(linear, "silu")
    with pytest.raises(ValueError, match="relu"):
        GpuLinear(linear, "relu")
