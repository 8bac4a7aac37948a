"""How far back a sequence with linear layers can go: which states its rings still hold, and which tokens went in, to
feed them again. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Put:
    """Tokens that entered a sequence together: one step of a width, or one forward of a prefill (width 0)."""

    start: int
    token_ids: tuple[int, ...]
    width: int


@dataclass
class Past:
    """A sequence of `end` tokens. The rings of `num_states` contain the states after `oldest` .. `newest` tokens.
    `puts`: everything that went in, or None if a jump made it unknown."""

    num_states: int
    end: int = 0
    oldest: int = 0
    newest: int = 0
    puts: list[Put] | None = field(default_factory=list)

    def stepped(self, token_ids: Sequence[int], width: int) -> None:
        """Record a step of that width at the end, with these tokens and padding."""
        self.newest = self.end + width
        self.oldest = max(self.oldest, self.newest - self.num_states + 1)
        self._put(token_ids, width)

    def prefilled(self, token_ids: Sequence[int]) -> None:
        """Record a prefill's forward at the end: only its last state is kept."""
        self._put(token_ids, 0)
        self.oldest = self.newest = self.end

    def holds(self, length: int) -> bool:
        """Whether the state after `length` tokens is available. Before the first token it is zero, and always is."""
        return length == 0 or self.oldest <= length <= self.newest

    def moved(self, length: int) -> None:
        """The pointer went to `length`: back, or elsewhere over whatever is in the rings."""
        if length == 0:
            self.oldest = self.newest = 0
            self.puts = []
        elif not self.holds(length):
            self.oldest = self.newest = length
            self.puts = None
        elif length > self.end:
            self.puts = None
        elif self.puts is not None:
            while self.puts and self.puts[-1].start >= length:
                self.puts.pop()
            self.puts[-1] = _cut(self.puts[-1], length)
        self.end = length

    def until(self, length: int) -> list[Put] | None:
        """What went in up to the first `length` tokens; None if unknown."""
        return None if self.puts is None else [_cut(put, length) for put in self.puts if put.start < length]

    def _put(self, token_ids: Sequence[int], width: int) -> None:
        if self.puts is not None:
            self.puts.append(Put(self.end, tuple(token_ids), width))
        self.end += len(token_ids)


def _cut(put: Put, length: int) -> Put:
    return replace(put, token_ids=put.token_ids[: length - put.start])
