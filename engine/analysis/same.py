"""What a comparison of two lanes is worth: the same, different, or not compared and why. Pure, standard library only.

Every verdict anywhere (terminal, page, exported page, stage, studies, servers, verify) is made by `worth`, from what
both lanes wrote and how they ended, and says no more than was compared."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ..core.events import Failed, Finished, LaneEvent, Step, width_words
from .verdict_words import FAULT, NOT_COMPARED, VERDICTS

Kind = Literal[
    "identical_bits",
    "identical_tokens",
    "near_tie",
    "different",
    "same_distribution",
    "same_text",  # this and the next: for lanes on servers
    "other_text",
    "not_compared",
]
KINDS = get_args(Kind)
IDENTICAL = ("identical_bits", "identical_tokens")
SAME = tuple(kind for kind in KINDS if VERDICTS[kind].is_same)


@dataclass(frozen=True)
class Difference:
    """Where two lanes diverge: what each chose, how close the choice was, and the widths that computed it.

    margin: difference between the two candidates' scores (logits / T + noise), the larger of the two lanes'.
    rounding: root mean square difference between the two lanes' logits at that position.
    rounding_share: `rounding` relative to the logits' own spread."""

    position: int
    tokens: tuple[int, int]
    pieces: tuple[str, str]
    widths: tuple[int | None, int | None]
    margin: float
    rounding: float
    rounding_share: float


@dataclass(frozen=True)
class Verdict:
    """The graded comparison of two lanes.

    rows_compared: tokens up to the first that differs (in audit mode also rows of logits).
    rows_different: how many of these rows differ; None without audit.
    sentence: the finding and its cause. A recording adds `complete` and `short`: see `claims.py`."""

    kind: Kind
    rows_compared: int
    rows_different: int | None
    first_difference: Difference | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


State = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Side:
    """One of two texts that are compared.

    name: its lane.
    num: how many tokens it has; of a server whose tokens are not compared, characters.
    state: whether it ended by itself, was stopped, or failed."""

    name: str
    num: int
    state: State


def state_of(events: Iterable[LaneEvent], lane: str) -> State:
    """How a lane ended."""
    ends = [e.event for e in events if e.lane == lane and isinstance(e.event, (Finished, Failed))]
    return "stopped" if not ends else "failed" if isinstance(ends[-1], Failed) else "finished"


def goes_on(sides: Sequence[Side]) -> bool:
    """Whether one of two texts finished where the other goes on: then they differ, however much of them is the same."""
    return any(side.state == "finished" and side.num < max(other.num for other in sides) for side in sides)


def differs_at(a: Sequence[Any], b: Sequence[Any], states: Sequence[State]) -> int | None:
    """The first place where two texts, or two lists of tokens, differ, be it the end of one that finished; None if none
    does, as far as the shorter one goes."""
    common = min(len(a), len(b))
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), common)
    sides = [Side("", len(one), state) for one, state in zip((a, b), states, strict=True)]
    return at if at < common or goes_on(sides) else None


def are_alike(a: Any, b: Any) -> bool | None:
    """Whether two whole answers are the same; None, not compared, if there is nothing in either."""
    return a == b if a or b else None


def worth(sides: Sequence[Side], what: str = "token") -> str:
    """Why two texts in which nothing differs must not be called the same, in words; "" if they may be, as far as the
    shorter one goes. what: `Side.num` counts these."""
    if failed := [side for side in sides if side.state == "failed"]:
        when = [f"after {_num(side.num, what)}" if side.num else f"before its first {what}" for side in failed]
        parts = [f"{side.name} failed {at}" for side, at in zip(failed, when, strict=True)]
        common = min(side.num for side in sides)
        return ", ".join(parts) + (f"; up to there, {_num(common, what)} of both are the same" if common else "")
    if empty := [side.name for side in sides if not side.num]:
        return f"{' and '.join(empty)} wrote nothing"
    return ""


NEAR_TIE_ROUNDINGS = 8.0
# the largest difference between rows that still counts as rounding, relative to the logits' own spread
ROUNDING_SHARE = {"float32": 2e-3, "bfloat16": 0.15, "float16": 0.05}


def compare(
    a: Sequence[Step],
    b: Sequence[Step],
    *,
    names: tuple[str, str],
    states: tuple[State, State],
    same_class: bool,
    dtype: str,
    explain: Callable[[int, tuple[int, int]], Difference],
) -> Verdict:
    """Compare what two lanes committed.

    states: how each lane ended; of lanes that did not finish only the shorter length is compared.
    same_class: whether both ran at widths whose rows were probed to be bit-equal: then any difference is a fault.
    explain: given a position and (token of a, token of b), measures how close the first difference was."""
    parting = part(a, b)
    ids = parting.tokens_a, parting.tokens_b
    sides = [Side(*fields) for fields in zip(names, map(len, ids), states, strict=True)]
    common, rows, both = min(map(len, ids)), parting.rows_different, f"{names[0]} and {names[1]}"
    kind: Kind
    difference = None
    if (first := parting.first) is not None:
        difference = explain(first, (ids[0][first], ids[1][first]))
        kind, sentence = _grade(difference, same_class, dtype, both)
    elif goes_on(sides):
        kind, sentence = "different", f"{FAULT}: {both} agree on {common} tokens, then only one continues"
    else:
        kind, sentence = _same(common, rows, both, "" if _complete(states) else ", up to the length of the shorter one")
        if rows and same_class:
            kind, sentence = "different", f"{FAULT}: {sentence}, although their widths are in the same class"
        elif why := worth(sides):
            kind, sentence = "not_compared", f"{NOT_COMPARED}: {why}"
    return Verdict(kind, parting.num_rows, rows, difference, sentence)


def promised(sides: Sequence[Side], rule: str) -> Verdict:
    """The verdict on two lanes that promise the same probabilities, not the same tokens: they are not compared. rule:
    that of the lane that draws separately."""
    if why := worth(sides):
        return Verdict("not_compared", 0, None, None, f"{NOT_COMPARED}: {why}")
    names = " and ".join(side.name for side in sides)
    words = f"{names} promise the same odds for every token, not the same tokens (rule {rule!r})"
    return Verdict("same_distribution", 0, None, None, f"same distribution only: {words}")


def short_words(
    kind: Kind, sides: Sequence[Side], rows_different: int | None, first: int | None, what: str = "token"
) -> str:
    """What was compared, in a few words.

    rows_different: rows of logits; None without audit.
    first: how many tokens are the same before the first that differs; None if none differs.
    what: `Side.num` counts these."""
    num, complete = min(side.num for side in sides), _complete(side.state for side in sides)
    if kind == "same_distribution":
        return ""
    if kind == "not_compared":
        return worth(sides, what)
    if first is not None:
        return f"the same for {first} of {_num(num, what)}, different from there on"
    if kind == "different" and not rows_different:
        return f"the same for {_num(num, what)}, then only one continues"
    if rows_different:
        return f"{_num(num, what)} identical, but the scores (logits) of {rows_different} of them differ"
    scores = "" if rows_different is None else ", and the model's scores (logits) too"
    return f"{num} of {_num(num, what)} identical{'' if complete else ' so far'}{scores}"


def _complete(states: Iterable[State]) -> bool:
    return all(state == "finished" for state in states)


def _num(num: int, what: str) -> str:
    return f"{num} {what}{'s' * (num != 1)}"


def _same(num: int, rows_different: int | None, both: str, so_far: str) -> tuple[Kind, str]:
    """The kind and the sentence for two lanes with the same tokens."""
    wrote = f"{both} wrote the same {_num(num, 'token')}"
    if rows_different == 0:
        kind: Kind = "identical_bits"
        return kind, f"{VERDICTS[kind].head}: {wrote} and 0 of {num} rows of logits differ{so_far}"
    kind, rows = "identical_tokens", f"; {rows_different} of {num} rows of logits differ" if rows_different else ""
    return kind, f"{VERDICTS[kind].head}: {wrote}{so_far}{rows}"


@dataclass(frozen=True)
class Parting:
    """What two lanes committed; the first place where their tokens differ, or None; the number of rows of logits up to
    there, and how many of them differ in checksum (None without audit)."""

    tokens_a: list[int]
    tokens_b: list[int]
    first: int | None
    num_rows: int
    rows_different: int | None


def part(a: Iterable[Step], b: Iterable[Step]) -> Parting:
    """Find where two lanes diverge."""
    (tokens_a, sums_a), (tokens_b, sums_b) = (
        ([t for s in lane for t in s.token_ids], [c for s in lane for c in s.checksums]) for lane in (a, b)
    )
    common = min(len(tokens_a), len(tokens_b))
    first = next((i for i in range(common) if tokens_a[i] != tokens_b[i]), None)
    num_rows = common if first is None else first + 1
    audited = sums_a and sums_b
    different = sum(x != y for x, y in zip(sums_a[:num_rows], sums_b[:num_rows], strict=True)) if audited else None
    return Parting(tokens_a, tokens_b, first, num_rows, different)


def _grade(d: Difference, same_class: bool, dtype: str, both: str) -> tuple[Kind, str]:
    where = (
        f"{both} diverge at token {d.position}: {d.pieces[0]!r} ({width_words(d.widths[0])}) vs {d.pieces[1]!r} "
        f"({width_words(d.widths[1])})"
    )
    close = f"; the two candidates are {d.margin:.3g} apart; rounding between these widths is {d.rounding:.2g}"
    if same_class:
        fault = "these widths were probed to be bit-equal, so this should never happen"
    elif not d.rounding_share <= ROUNDING_SHARE.get(dtype, 0.0):  # NaN is no rounding
        fault = f"the rows differ by {100 * d.rounding_share:.1f} % of their spread, too much for rounding"
    elif not d.margin <= NEAR_TIE_ROUNDINGS * d.rounding:
        fault = "the margin is too large for rounding"
    else:
        why = "different widths sum in a different order, which flips a near tie"
        return "near_tie", f"{VERDICTS['near_tie'].head}: {where}{close}: {why}"
    return "different", f"{FAULT}: {where}{close}; {fault}"


def width_at(steps: Sequence[Step], position: int) -> int | None:
    """The width of the step that committed the token at `position`."""
    return next(s.width for s in steps if s.position <= position < s.position + len(s.token_ids))
