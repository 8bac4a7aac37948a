"""The values that configure a race, checked when made, and the shape of a draft tree. Standard library only.

The rows of a step: 0 is that of the last committed token, i + 1 that of draft token i. A tree has `parents`: the row
that each token follows, an earlier one. The tokens that follow one row differ."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .errors import UsageError, choices, short
from .values import integer, number

MAX_K = 63
AUTO = "auto"
MAX_AUTO_K = 15  # the most tokens of a draft where k is "auto"
TREE = "tree:"  # prefix of k for a lane whose drafts are trees of a fixed size, as in tree:7
MAX_WIDTH = 64
MAX_NEW_TOKENS = 100_000
MAX_LANES = 16
MAX_NAME = 10_000  # characters of a lane's name
MAX_DRAFTER = 1_000  # of a drafter's text form
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 200
SMALLEST = 5e-324  # the smallest number above 0
SERVER = "server"  # the drafter of a lane that is decoded on a server, whatever drafts there
RANDOM = "random:"  # prefix of a target with random weights
RULES = ("coupled", "rejection")  # acceptance rules; see `rule_of` in `session/lanes.py`
TEMPERATURE, TOP_P = number(0, 100), number(SMALLEST, 1, "a number above 0 and at most 1")
TOP_K, SEED, LENGTH = integer(0, 2**31 - 1), integer(0, 2**63 - 1), integer(1, MAX_NEW_TOKENS)
WIDTH = integer(1, MAX_WIDTH, "auto", "fastest")
# A lane's role: plain decoding at whatever width is fastest, which may round otherwise; the same loop at the width of
# the drafting lanes, whose tokens they have to write; or a drafting one.
PLAIN, BASELINE, SPECULATIVE = ROLES = ("plain", "baseline", "speculative")


def check_length(drafter: str) -> None:
    """Raise UsageError if a drafter's text form is too long."""
    if len(drafter) > MAX_DRAFTER:
        raise UsageError(
            f"the drafter {drafter[:40]!r}... has {len(drafter)} characters; at most {MAX_DRAFTER} are allowed"
        )


@dataclass(frozen=True)
class SamplingParams:
    """How the target's next token is chosen and when the completion ends; the same in every lane.

    temperature: 0 is greedy.
    top_k, top_p: 0 and 1 turn them off.
    seed: it and the position in the completion decide all noise.
    max_new_tokens: length limit, in tokens.
    stop: strings that end the completion.

    Raises UsageError naming the value and the limits."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        TEMPERATURE.check("temperature", self.temperature)
        TOP_P.check("top_p", self.top_p)
        if 0 < self.temperature < 1e-3:
            raise UsageError(f"temperature must be 0 (greedy) or at least 0.001, not {self.temperature!r}")
        TOP_K.check("top_k", self.top_k)
        SEED.check("seed", self.seed)
        LENGTH.check("max_new_tokens", self.max_new_tokens)
        if not isinstance(self.stop, tuple) or not all(isinstance(s, str) for s in self.stop):
            raise UsageError(f"stop must be a tuple of strings, not {short(self.stop)}")
        if len(self.stop) > MAX_STOP_STRINGS or any(not 1 <= len(s) <= MAX_STOP_LENGTH for s in self.stop):
            raise UsageError(f"stop takes up to {MAX_STOP_STRINGS} strings of 1 to {MAX_STOP_LENGTH} characters")


@dataclass(frozen=True)
class LaneSpec:
    """One lane of a race.

    name: unique in its race. `plain` and `baseline` name the lanes of these roles, and no others.
    drafter: `name` or `name:argument`.
    k: the most tokens that a step drafts, one after the other. "tree:N": a tree of at most N. "auto": as many as pay,
        up to `max_drafts`, as a tree where the target takes trees.
    width: rows of every step. "auto": the narrowest width that holds the step, of those that give a row the same bits
        (their class, see `exactness/`). "fastest", for the plain lane: the one measured fastest, of any class.
    rule: the acceptance rule, one of RULES.
    role: one of ROLES; "": by the name.

    Raises UsageError naming the value and the limits."""

    name: str
    drafter: str = "none"
    k: int | str = 0
    width: int | str = "auto"
    rule: str = "coupled"
    role: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= MAX_NAME:
            raise UsageError(
                f"a lane's name must be text of at least 1 and at most {MAX_NAME} characters, not {short(self.name)}"
            )
        if not isinstance(self.drafter, str) or not self.drafter:
            raise UsageError(f"a drafter must be given as name or name:argument, not {short(self.drafter)}")
        check_length(self.drafter)
        if not tree_size(self.k):
            integer(0, MAX_K, AUTO).check("k", self.k)
        WIDTH.check("width", self.width)
        least = 2 if self.k == AUTO else self.max_drafts + 1
        if isinstance(self.width, int) and self.width < least:
            raise UsageError(
                f"width {self.width} cannot hold k={self.k} drafts and the last token; it must be at least {least}"
            )
        if self.rule not in RULES:
            raise choices("rule", self.rule, RULES)
        if tree_size(self.k) and self.rule != "coupled":
            raise UsageError(f"rule {self.rule!r} weighs one draft token after the other; a tree needs rule 'coupled'")
        if self.drafter != "none" and self.k == 0:
            raise UsageError(f"drafter {self.drafter!r} needs k of 1 to {MAX_K} or auto, not 0")
        object.__setattr__(self, "role", self.role or (self.name if self.name in (PLAIN, BASELINE) else SPECULATIVE))
        if self.role not in ROLES:
            raise choices("role", self.role, ROLES)
        if self.name in (PLAIN, BASELINE) and self.role != self.name:
            raise UsageError(f"the name {self.name!r} is that role's own; no {self.role} lane can have it")
        if self.role != SPECULATIVE and self.drafter not in ("none", SERVER):
            raise UsageError(f"a {self.role} lane drafts nothing, so it cannot have drafter {short(self.drafter)}")
        if self.role != PLAIN and self.width == "fastest":
            raise UsageError(f"a {self.role} lane needs a width of the race's class; only the plain lane is 'fastest'")

    @property
    def max_drafts(self) -> int:
        """The most tokens that a step of this lane may draft."""
        if self.k != AUTO:
            return tree_size(self.k) or int(self.k)
        if self.drafter == SERVER:
            return MAX_K
        return MAX_AUTO_K if isinstance(self.width, str) else min(MAX_AUTO_K, self.width - 1)


@dataclass(frozen=True)
class RaceSpec:
    """Everything that defines a race except the model and the prompt.

    lanes: 1 to MAX_LANES, with different names.
    params: how tokens are chosen, the same in every lane.
    audit: record checksums of the logits that decided tokens, and the most probable tokens of every row.
    solo: run lane after lane rather than step by step.

    Raises UsageError naming the value and the limits."""

    lanes: tuple[LaneSpec, ...]
    params: SamplingParams = SamplingParams()
    audit: bool = False
    solo: bool = False

    def __post_init__(self) -> None:
        names = [lane.name for lane in self.lanes]
        if not 1 <= len(set(names)) == len(names) <= MAX_LANES:
            raise UsageError(
                f"a race needs from 1 to {MAX_LANES} lanes with different names, not {len(names)}: "
                f"{', '.join(names)[:200]}"
            )
        for role in (PLAIN, BASELINE):
            if len(named := self.named(role)) > 1:
                raise UsageError(f"a race has one {role} lane, not {len(named)}: {', '.join(named)[:200]}")

    def to_json(self) -> dict[str, Any]:
        """As in a recording."""
        return json.loads(json.dumps(asdict(self)))

    def named(self, role: str) -> list[str]:
        """The names of the lanes with this role, in their order."""
        return [lane.name for lane in self.lanes if lane.role == role]

    def first(self, role: str) -> str:
        """The name of the first lane with this role, or ""."""
        return next(iter(self.named(role)), "")


def tree_size(k: int | str) -> int:
    """The size of trees where k is "tree:N", else 0. Raises UsageError for a size out of limits."""
    if not isinstance(k, str) or not k.startswith(TREE):
        return 0
    size = k.removeprefix(TREE)
    if not (size.isascii() and size.isdigit() and len(size) <= 2 and 1 <= int(size) <= MAX_K):
        raise UsageError(f"a tree has from 1 to {MAX_K} tokens, as in {TREE}7, not {short(k)}")
    return int(size)


def lanes_of(
    drafting: Iterable[tuple[str, str, int | str]], width: int | str = "auto", rule: str = "coupled"
) -> tuple[LaneSpec, ...]:
    """The lanes of a race: plain, baseline, and a speculative lane for each (name, drafter, k) of `drafting`. `rule`
    applies to those only: the others draft nothing."""
    speculative = (LaneSpec(name, drafter, 0 if drafter == "none" else k, width, rule) for name, drafter, k in drafting)
    return (LaneSpec(PLAIN, width="fastest"), LaneSpec(BASELINE, width=width), *speculative)


def standard_lanes(
    drafter: str, k: int | str, width: int | str = "auto", rule: str = "coupled"
) -> tuple[LaneSpec, ...]:
    """The lanes of a race with one speculative lane.

    drafter: `name` or `name:argument`.
    k: the most tokens that a step drafts, or "auto".
    width, rule: see LaneSpec.
    """
    return lanes_of([(SPECULATIVE, drafter, k)], width, rule)


def is_tree(parents: Sequence[int], token_ids: Sequence[int]) -> bool:
    """Whether these are the parents of a tree of these tokens."""
    return (
        len(parents) == len(token_ids)
        and all(type(row) is int and 0 <= row <= i for i, row in enumerate(parents))
        and len(set(zip(parents, token_ids, strict=True))) == len(token_ids)
    )


def row_after(parents: Sequence[int], token_ids: Sequence[int], row: int, token: int) -> int | None:
    """The row of the token that follows `row` in a tree, if it is this one; else None."""
    both = enumerate(zip(parents, token_ids, strict=True), 1)
    return next((i for i, pair in both if pair == (row, token)), None)


def kept(parents: Sequence[int], token_ids: Sequence[int], written: Sequence[int]) -> list[int]:
    """Which tokens of a tree, by number, go on as `written` does: a path from the root."""
    rows = [0]
    for token in written:
        if (row := row_after(parents, token_ids, rows[-1], token)) is None:
            break
        rows.append(row)
    return [row - 1 for row in rows[1:]]


def paths(parents: Sequence[int]) -> list[tuple[int, ...]]:
    """For each row, the draft tokens that lead to it, as indices into the draft (row - 1), its own last; () for row
    0."""
    paths: list[tuple[int, ...]] = [()]
    for i, row in enumerate(parents):
        paths.append((*paths[row], i))
    return paths
