"""The result of one prompt's race for one drafter. Standard library only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...analysis.metrics import is_noise
from ...core.spec import AUTO, MAX_K
from ...core.values import FLAG, Shape, items, members, number
from ...strict_json import COUNT, MAX_INT, TEXT, IfThere, Maybe, fits


@dataclass(frozen=True)
class Row:
    """One drafter on one prompt.

    line: of the prompt in its file.
    prompt: its text, shortened.
    k: as raced.
    speedup: over the faster of plain and baseline; None if nothing could be timed.
    noise: half its 95 % interval, as a share (see `metrics.ratio_noise`).
    loops: whether the text repeats itself in a loop.
    computed: the speed-up at each k of chains, at the costs of this race.
    disturbed: whether the machine was busy with something else.
    fault: what went wrong, or "".
    differs_at: the first character at which a server's text differs from the plain one's; None if it does not, or is
        not compared by characters.
    ways: where the texts part: up to 60 characters before that place, then how the plain text and this one go on.
    peers: how transformers did on this prompt, see `generate`: the name of each way; its tokens per second over the
        plain lane's; whether it wrote the same tokens, None if it had other noise; what went wrong, or "".
    """

    line: int
    prompt: str
    kind: str
    drafter: str
    k: str
    speedup: float | None
    noise: float | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    num_tokens: int
    identical: bool | None
    loops: bool = False
    disturbed: bool = False
    fault: str = ""
    computed: Mapping[str, float] = field(default_factory=dict)
    differs_at: int | None = None
    ways: list[str] | None = None
    peers: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


KS = {AUTO, *map(str, range(1, MAX_K + 1))}
GAIN = number(0, MAX_INT, "a number from 0 on")
_COMPUTED = members("an object of numbers by k", GAIN)
_SHAPE = {
    "line": COUNT,
    **dict.fromkeys(("prompt", "kind", "drafter", "k", "fault"), TEXT),
    **dict.fromkeys(("speedup", "noise", "acceptance_rate", "mean_acceptance_length"), Maybe(GAIN)),
    "num_tokens": COUNT,
    "identical": Maybe(FLAG),
    **dict.fromkeys(("loops", "disturbed"), FLAG),
    "computed": Shape(_COMPUTED.wanted, lambda value: _COMPUTED.holds(value) and value.keys() <= KS),
    "differs_at": IfThere(Maybe(COUNT)),
    "peers": IfThere([{"name": TEXT, "speed": Maybe(GAIN), "same": Maybe(FLAG), "fault": TEXT}]),
    "ways": IfThere(Maybe(items("three texts", TEXT, [3]))),
}


def row_of(value: Any) -> Row:
    """The inverse of `to_json`. Raises UsageError for anything else."""
    fits(value, _SHAPE)
    return Row(**{name: value[name] for name in _SHAPE if name in value})


def gain_at(row: Row, k: int | str | None) -> float | None:
    """The row's speed-up at this k: measured if it was raced so, else computed; None if neither. k None: as raced."""
    return row.speedup if k is None or str(k) == row.k or row.fault else row.computed.get(str(k))


def outcome(row: Row, k: int | str | None = AUTO) -> str:
    """One of "gains", "loses" and "even" (the speed-up is indistinguishable from 1)."""
    gain = gain_at(row, k)
    if not gain or is_noise(gain, row.noise):
        return "even"
    return "gains" if gain > 1 else "loses"
