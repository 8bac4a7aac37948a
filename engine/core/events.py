"""The events of a lane: frozen values, shared by the loop, the page, recordings and tests. Standard library only.

`recordings/event_json.py` has their JSON form."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Union

from .spec import kept, paths

FINISH_REASONS = ("stop", "stop_string", "length")  # an end token, a stop string, the limit on new tokens


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt.

    text: as given.
    token_ids: what the target sees, special tokens included.
    chat: whether the text is one user message, and the ids are those of the model's chat template around it.
    """

    text: str
    token_ids: tuple[int, ...]
    chat: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A lane's prefill is done. `prefill_s` includes the drafter's share."""

    num_prompt_tokens: int
    prefill_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """One verification step. The first `num_accepted` of `token_ids` are drafted tokens, `kept` says which: of a chain
    the first ones, of a tree a path from its root. The target's own token follows, unless a stop cut it off.

    Rows are numbered as in `spec.py`; the properties below treat chains and trees alike.

    A server may report only the number of drafts: then `drafted` is empty. Where it reports no drafts either, `width`
    is None, and what arrived together counts as one step, of any number of tokens."""

    index: int
    position: int  # position of `token_ids[0]` in the completion
    drafted: tuple[int, ...]
    num_accepted: int
    token_ids: tuple[int, ...]
    draft_s: float
    verify_s: float
    width: int | None  # rows of the target's forward, padding included; None if unknown
    pieces: tuple[str, ...] = ()
    drafted_pieces: tuple[str, ...] = ()
    checksums: tuple[int, ...] = ()  # one unsigned 64-bit integer per committed row of logits, in audit mode
    num_unknown: int = 0  # drafted tokens of which only the number is known: none, or all of them
    # (i, j): the draft from its token i on is a copy of the text from its token j on. The text is the prompt, the
    # completion so far and the draft itself. () if nothing was copied, or unknown.
    copied: tuple[int, ...] = ()

    # See `interfaces.Draft`. () for a chain.
    parents: tuple[int, ...] = ()
    # For each token of a tree, the place in the text that it was copied from; -1: from none. The text is the prompt,
    # the completion so far and the draft's path to the token. () for a chain, which has `copied`.
    sources: tuple[int, ...] = ()
    # For each drafted token, the chance of being kept that its drafter gave it. () if unknown.
    chances: tuple[float, ...] = ()

    @property
    def kept(self) -> tuple[int, ...]:
        """Which drafted tokens were accepted, by number, in the order of the text."""
        if not self.parents:
            return tuple(range(self.num_accepted))
        return tuple(kept(self.parents, self.drafted, self.token_ids[: self.num_accepted]))

    @property
    def rows(self) -> tuple[int, ...]:
        """For each committed token, the row that decided it."""
        return (0, *(i + 1 for i in self.kept))[: len(self.token_ids)]

    @property
    def follows(self) -> tuple[int, ...]:
        """For each drafted token, the row that it follows."""
        return self.parents or tuple(range(len(self.drafted)))

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """See `spec.paths`. The length of a row's path is its depth: it decides the token at `position` + depth."""
        return paths(self.follows)

    @property
    def depth(self) -> int:
        """The most tokens that the step could have kept."""
        return max(map(len, self.paths)) if self.parents else self.num_drafted

    @property
    def is_refuted(self) -> bool:
        """Whether the target's own token took the place of a drafted one."""
        if len(self.token_ids) == self.num_accepted:  # a stop came first
            return False
        if not self.parents:
            return self.num_accepted < self.num_drafted
        return (self.kept[-1] + 1 if self.kept else 0) in self.parents

    @property
    def places(self) -> tuple[int, ...]:
        """For each drafted token, the place in the text that it was copied from; -1: from none, or unknown."""
        if not self.copied:
            return self.sources or (-1,) * len(self.drafted)
        first, start = self.copied
        return (-1,) * first + tuple(range(start, start + len(self.drafted) - first))

    @property
    def num_drafted(self) -> int:
        """Number of drafted tokens, known or not."""
        return len(self.drafted) + self.num_unknown

    @property
    def seconds(self) -> float:
        return self.draft_s + self.verify_s


@dataclass(frozen=True, slots=True)
class Finished:
    """The lane is done. `reason` is one of FINISH_REASONS; `decode_s` is the sum of its steps' seconds."""

    reason: str
    num_tokens: int
    decode_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The lane failed; what it committed before remains."""

    message: str


Event = Union[Started, Step, Finished, Failed]


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """An event of a named lane.

    clock_s: the seconds of the lane's steps so far, without prefill.
    wall_s: seconds since the race began, on the wall clock; None if not measured.
    """

    lane: str
    clock_s: float
    event: Event
    wall_s: float | None = None


def width_words(width: int | None) -> str:
    """The width of a step in words."""
    return "unknown width" if width is None else f"width {width}"


def steps(events: Iterable[LaneEvent], lane: str) -> list[Step]:
    """The steps of one lane, in order."""
    return [e.event for e in events if e.lane == lane and isinstance(e.event, Step)]


def token_ids(events: Iterable[LaneEvent], lane: str) -> list[int]:
    """All tokens that a lane committed."""
    return [token for step in steps(events, lane) for token in step.token_ids]


def text_of(events: Iterable[LaneEvent], lane: str, stop: tuple[str, ...] = ()) -> str:
    """The text that a lane wrote, without the end token, up to the first stop string."""
    text = "".join(piece for step in steps(events, lane) for piece in step.pieces)
    return text[: min((place for s in stop if (place := text.find(s)) >= 0), default=len(text))]
