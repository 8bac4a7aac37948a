"""The choice of a race's widths, from what was probed and measured. Pure, standard library only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..core.spec import MAX_WIDTH

DOMINATED, ALIKE = 0.97, 1.01
# Widths are weighed by these rates where `auto` k decides at each step: the real one is not known yet.
ASSUMED_ACCEPTANCE = (0.0, 0.5, 0.8, 0.9)


@dataclass(frozen=True)
class WidthClasses:
    """The probe's result. `classes`: groups of widths whose rows are bit-equal; `unstable`: widths at which a row's
    bits depend on its place or its neighbours."""

    classes: tuple[tuple[int, ...], ...]
    unstable: tuple[int, ...] = ()

    def of(self, width: int) -> tuple[int, ...]:
        """The class of a width; an unstable one is alone."""
        return next((c for c in self.classes if width in c), (width,))


@dataclass(frozen=True)
class WidthPlan:
    """The widths of a race.

    width: holds k drafts and the last token.
    step_widths: the widths that exact lanes may mix.
    plain_width: the fastest of all; of those within 1 %, the narrowest.
    exact: whether equal tokens are promised, bit for bit.
    note: why, in a sentence.
    """

    width: int
    step_widths: tuple[int, ...]
    plain_width: int
    exact: bool
    note: str


def candidates(k: int, width: int | str = "auto", fine: bool = False) -> tuple[int, ...]:
    """Widths worth probing for drafts of k tokens: powers of two up to the first that holds k + 1, k + 1 itself, and
    `width` if it is an integer. fine: from 6 on half-way widths too, for devices where every row takes time."""
    widths = {1, 2, k + 1}
    power = 4
    while power < 2 * (k + 1) and power <= MAX_WIDTH:
        widths |= {power, power * 3 // 4} if fine and power >= 8 else {power}
        power *= 2
    if isinstance(width, int):
        widths.add(width)
    return tuple(sorted(w for w in widths if w <= MAX_WIDTH))


def plan(
    classes: WidthClasses, seconds: Mapping[int, float], k: int, width: int | str = "auto", auto_k: bool = False
) -> WidthPlan:
    """Choose a race's widths. seconds: a step's, by width. With an integer `width` every exact step runs at it; with
    "auto" each step runs at the narrowest width of the class that holds it, except widths that a wider one beats by 3 %
    or more. The plan holds k drafts; with `auto_k` at least k and one more, in the class that promises the fastest
    steps."""
    stable = [w for w in sorted(seconds) if w not in classes.unstable]
    narrow = {w: s for w, s in seconds.items() if w <= 8}
    plain_width = min(w for w, s in narrow.items() if s <= ALIKE * min(narrow.values()))
    if isinstance(width, int):
        exact = width not in classes.unstable
        note = f"every step of the exact lanes runs at width {width}" if exact else _not_exact([width])
        return WidthPlan(width, (width,), plain_width, exact, note)
    wide = [w for w in seconds if w > max(k, 1 if auto_k else 0)]
    fitting = [w for w in stable if w in wide]
    if auto_k:
        fitting.sort(key=lambda w: -_promise(classes, seconds, w))
    chosen = next(iter(fitting), None)
    if chosen is None:
        chosen = max(wide, key=lambda w: _promise(WidthClasses(()), seconds, w)) if auto_k else min(wide)
        return WidthPlan(chosen, (chosen,), plain_width, False, _not_exact(wide))
    members = [w for w in classes.of(chosen) if w <= chosen and w in seconds]
    step_widths = tuple(w for w in members if not any(seconds[v] < DOMINATED * seconds[w] for v in members if v > w))
    note = f"steps run at widths {_words(step_widths)}, whose rows are bit-equal on this device"
    return WidthPlan(chosen, step_widths, plain_width, True, note)


def _promise(classes: WidthClasses, seconds: Mapping[int, float], width: int) -> float:
    """Grows with the tokens per second of the class's widths up to this one, over ASSUMED_ACCEPTANCE, drafts free."""
    widths = [w for w in classes.of(width) if w <= width and w in seconds]
    return prod(max(sum(rate**i for i in range(w)) / seconds[w] for w in widths) for rate in ASSUMED_ACCEPTANCE)


def _not_exact(widths: Sequence[int]) -> str:
    return (
        f"not exact on this device: at width {_words(widths)} a row's bits depend on its place or its neighbours; "
        "tokens are compared all the same, and the comparison graded"
    )


def _words(widths: Sequence[int]) -> str:
    return " and ".join(", ".join(map(str, part)) for part in (widths[:-1], widths[-1:]) if part)
