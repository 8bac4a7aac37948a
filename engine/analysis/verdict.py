"""Whether two lanes wrote the same tokens: a graded verdict with its cause. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..events import Step, width_words

Kind = Literal["identical_bits", "identical_tokens", "near_tie", "different", "same_distribution"]


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
    """The graded comparison of two lanes. `rows_compared` counts tokens (rows of logits in audit mode);
    `rows_different` is None without audit."""

    kind: Kind
    rows_compared: int
    rows_different: int | None
    first_difference: Difference | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


NEAR_TIE_ROUNDINGS = 8.0
ROUNDING_SHARE = {"float32": 2e-3, "bfloat16": 0.15, "int8": 0.15, "float16": 0.05}
"""The largest difference between rows that still counts as rounding, relative to the logits' own spread."""


def compare(
    a: Sequence[Step],
    b: Sequence[Step],
    *,
    names: tuple[str, str],
    same_class: bool,
    dtype: str,
    explain: Callable[[int, tuple[int, int]], Difference],
    finished: bool,
) -> Verdict:
    """Compare what two lanes committed.

    same_class: whether both ran at widths whose rows were probed to be bit-equal: then any difference is a fault.
    explain: given a position and (token of a, token of b), measures how close the first difference was.
    finished: False if a lane failed or was stopped; then only the shorter length is compared."""
    parting = part(a, b)
    common, audited = min(len(parting.tokens_a), len(parting.tokens_b)), parting.rows_different is not None
    both, so_far = f"{names[0]} and {names[1]}", "" if finished else ", up to the length of the shorter one"
    kind: Kind
    difference = None
    if (first := parting.first) is not None:
        difference = explain(first, (parting.tokens_a[first], parting.tokens_b[first]))
        kind, sentence = _grade(difference, same_class, dtype, both)
    elif len(parting.tokens_a) != len(parting.tokens_b) and finished:
        kind, sentence = "different", f"a fault: {both} agree on {common} tokens, then only one continues"
    elif audited and not parting.rows_different and common:
        kind = "identical_bits"
        sentence = (
            f"identical, bit for bit: {both} wrote the same {common} tokens and 0 of {common} rows of logits "
            f"differ{so_far}"
        )
    else:
        kind, sentence = "identical_tokens", f"identical tokens: {both} wrote the same {common} tokens{so_far}"
        if parting.rows_different:
            sentence += f"; {parting.rows_different} of {common} rows of logits differ in their last bits"
            if same_class:
                kind, sentence = "different", f"{sentence}, although their widths are in the same class: a fault"
    return Verdict(kind, parting.num_rows, parting.rows_different, difference, sentence)


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
        return (
            "different",
            f"a fault: {where}{close}; these widths were probed to be bit-equal, so this should never happen",
        )
    if d.rounding_share > ROUNDING_SHARE.get(dtype, 0.0):
        return (
            "different",
            f"a fault: {where}{close}; the rows differ by {100 * d.rounding_share:.1f} % of their spread, too much "
            "for rounding",
        )
    if d.margin > NEAR_TIE_ROUNDINGS * d.rounding:
        return "different", f"a fault: {where}{close}; the margin is too large for rounding"
    return (
        "near_tie",
        f"near-tie flip: {where}{close}: different widths sum in a different order, which flips a near tie",
    )


def width_at(steps: Sequence[Step], position: int) -> int | None:
    """The width of the step that committed the token at `position`."""
    return next(s.width for s in steps if s.position <= position < s.position + len(s.token_ids))
