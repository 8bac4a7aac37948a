"""The steps of a server's lane, from the chunks of its answer and its own counts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from ..core.errors import RaceError
from ..core.events import Step
from ..core.spec import MAX_K
from .endpoint import Hiding
from .reply import Chunk, Drafted, Reply


@dataclass
class Written:
    """What a lane has written so far: for each token its id (0 if the server only counts), its text and when it came. A
    chunk's text belongs to its first token. ends: after which tokens a chunk ended, 0 first. uncounted: the chunks so
    far, if the server counted none of them: until its answer's end each counts as a token.

    secrets stay out of the text: see `Hiding`. limit: the request's maximum number of tokens. num_thinking: tokens
    before the first piece that belongs to the answer; None while there is none."""

    limit: int
    secrets: Collection[str] = ()
    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])
    has_ids: bool = True
    num_thinking: int | None = None
    uncounted: list[Chunk] = field(default_factory=list)
    num_hidden: int = 0

    def __post_init__(self) -> None:
        self._hiding, self._text = Hiding(self.secrets), ""

    def take(self, chunk: Chunk) -> None:
        """Raises RaceError if the chunk's number of tokens contradicts those before."""
        if chunk.num_tokens is None:
            self.uncounted.append(chunk)
        self._take(chunk, min(self.ends[-1] + 1, self.limit) if chunk.num_tokens is None else chunk.num_tokens)

    def _take(self, chunk: Chunk, num_tokens: int) -> None:
        self._text += self._hiding.feed(chunk.text)
        self.has_ids = self.has_ids and len(chunk.token_ids) == num_tokens - self.ends[-1]
        if chunk.answer and self.num_thinking is None:
            self.num_thinking = self.ends[-1]
        self._add(num_tokens, chunk.token_ids, chunk.at_s)

    def end(self, reply: Reply) -> None:
        """reply: the whole answer. Its tokens without text belong to the last chunk. Raises RaceError like `take`, and
        for an answer without tokens."""
        if not self.at_s:
            raise RaceError("the server's answer has no token")
        num_tokens, self.num_hidden = reply.num_tokens or 0, reply.num_hidden
        if self.uncounted and num_tokens != len(self.uncounted):
            self._spread(num_tokens)
        before = self.ends[-1]
        self._add(num_tokens, (), self.at_s[-1])
        if self.ends[-1] > before:
            self.ends.remove(before)
        together_s = reply.chunks[reply.num_together - 1].at_s
        self.at_s = [self.at_s[0] if at_s <= together_s else at_s for at_s in self.at_s]
        self.flush()

    def is_estimated(self, num_tokens: int) -> bool:
        """Whether the tokens of each chunk of an answer of that many tokens are estimated."""
        return bool(self.uncounted) and num_tokens - self.num_hidden != len(self.uncounted)

    def _spread(self, num_tokens: int) -> None:
        """Give the chunks an answer's tokens: those of hidden thinking to the first, of the others one to each if that
        is all, else by the lengths of their texts."""
        self.token_ids, self.pieces, self.at_s, self.ends, self.num_thinking = [], [], [], [0], None
        self._hiding, self._text, num = Hiding(self.secrets), "", 0
        sizes = [len(chunk.text) if self.is_estimated(num_tokens) else 1 for chunk in self.uncounted]
        tokens_per_size = (num_tokens - self.num_hidden) / sum(sizes)
        for chunk, size in zip(self.uncounted, sizes, strict=True):
            num += size
            self._take(chunk, max(1, self.num_hidden + round(num * tokens_per_size)))

    def flush(self) -> None:
        """Text that was kept back, or came without a token of its own, goes to the last token."""
        if self.pieces:
            self.pieces[-1] += self._text + self._hiding.flush()
            self._text = ""

    def _add(self, num_tokens: int, token_ids: Sequence[int], at_s: float) -> None:
        before = self.ends[-1]
        if num_tokens < before:
            raise RaceError(f"the server counts {num_tokens} tokens after it counted {before}")
        if num_tokens > self.limit:
            raise RaceError(f"the server sent {num_tokens} tokens, not the requested {self.limit}")
        if (num_new := num_tokens - before) == 0:
            return
        self.token_ids += token_ids if len(token_ids) == num_new else [0] * num_new
        self.pieces += [self._text, *[""] * (num_new - 1)]
        self.at_s += [at_s] * num_new
        self.ends.append(num_tokens)
        self._text = ""

    def last_chunk(self) -> Step:
        """The last chunk that brought a token, as a step without drafts."""
        start = self.ends[-2]
        seconds = self.at_s[start] - self.at_s[start - 1] if start else 0.0
        return self._step(len(self.ends) - 2, _Cut(start, self.ends[-1]), seconds)

    def steps(self, drafted: Drafted | None = None) -> list[Step] | None:
        """The lane's steps: its chunks or, given the server's lists of accepted and drafted tokens, the lists' steps;
        None if lists and chunks contradict each other. Steps that came together share the time since the previous ones
        equally; the first have none."""
        cuts = [_Cut(a, b) for a, b in pairwise(self.ends)] if drafted is None else _cuts(self.ends, drafted)
        if cuts is None:
            return None
        done: list[Step] = []
        before_s = self.at_s[0] if self.at_s else 0.0
        for at_s, together in groupby(cuts, key=lambda cut: self.at_s[cut.start]):
            group = list(together)
            done += [self._step(len(done) + i, cut, (at_s - before_s) / len(group)) for i, cut in enumerate(group)]
            before_s = at_s
        return done

    def _step(self, index: int, cut: _Cut, seconds: float) -> Step:
        tokens = tuple(self.token_ids[cut.start : cut.end])
        return Step(
            *(index, cut.start, (), cut.num_accepted, tokens, 0.0, seconds, None),
            pieces=tuple(self.pieces[cut.start : cut.end]),
            num_unknown=cut.num_drafted,
        )


@dataclass(frozen=True)
class _Cut:
    start: int
    end: int
    num_accepted: int = 0
    num_drafted: int = 0


def _cuts(ends: Sequence[int], drafted: Drafted) -> list[_Cut] | None:
    """Match the server's lists to its chunks. The first token is the prompt's; every entry of the lists is a step of
    accepted + 1 tokens; others are steps without a draft, which vLLM leaves out of its lists. A chunk holds whole
    steps. Every entry goes to the first possible place: this finds a match if there is one, the only one if the entries
    fill the text. A step cut by the end has accepted no more tokens than it wrote."""
    if not ends[-1] or any(num > MAX_K for num in drafted.drafted):
        return None
    entries = list(zip(drafted.accepted, drafted.drafted, strict=True))
    if drafted.starts:
        return _cuts_at(ends[-1], drafted.starts, entries)
    cuts, at = [_Cut(0, 1)], 1
    for start, end in pairwise(ends):
        at = max(at, start)
        while at < end:
            cut = _Cut(at, at + 1)
            cut_off = end == ends[-1] and len(entries) == 1
            if entries and (cut_off or at + entries[0][0] + 1 <= end):
                num_accepted, num_drafted = entries.pop(0)
                size = min(num_accepted + 1, end - at)
                cut = _Cut(at, at + size, min(num_accepted, size), num_drafted)
            cuts.append(cut)
            at = cut.end
    return None if entries else cuts


def _cuts_at(num_tokens: int, starts: Sequence[int], entries: Sequence[tuple[int, int]]) -> list[_Cut] | None:
    """The steps where the first token of each verification is known; None if they overlap."""
    cuts, at = list[_Cut](), 0
    for start, (num_accepted, num_drafted) in zip(starts, entries, strict=True):
        if start < at:
            return None
        cuts += [_Cut(i, i + 1) for i in range(at, start)]
        at = min(start + num_accepted + 1, num_tokens)
        cuts.append(_Cut(start, at, min(num_accepted, at - start), num_drafted))
    return cuts + [_Cut(i, i + 1) for i in range(at, num_tokens)]
