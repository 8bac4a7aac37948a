"""`hybrid:ngram+X`: copy where the text repeats itself, else let another drafter guess. Standard library only."""

from collections.abc import Sequence
from typing import Any

from ..core.errors import UsageError
from ..core.interfaces import Draft, Drafter
from ..progress import Progress
from . import DrafterContext, Kind, cache_bytes, check, make, most_drafts, parse

COPIES = "ngram"
# Tokens that must match if `ngram` has no number and k is fixed. After 1 or 2 equal tokens on recorded prose a copy
# holds for 12-40 % of first tokens, less than a drafter with a model reaches; after 3 or more, on recorded structured
# text, for 67-100 %. `auto` k learns the value of short matches, and gets all of them.
MIN_MATCH = 3
NOT_INSIDE = ("hybrid", "none", "synthetic")


class HybridDrafter(Drafter):
    """Proposes what `first` proposes or, if that is nothing, what `second` does. `first` works from token ids alone;
    `second` sees every commit and takes its hidden rows at every call."""

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self.parts = (first, second)
        self.hidden_layers = second.hidden_layers

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        first, second = self.parts
        first.prefill(prompt_ids, None)
        second.prefill(prompt_ids, hidden)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        """See `interfaces.Drafter`."""
        first, second = self.parts
        draft = first.propose(token_ids, None, k)
        if not draft.token_ids:
            return second.propose(token_ids, hidden, k)
        second.propose(token_ids, hidden, 0)
        return draft


def parts_of(argument: str) -> tuple[str, str]:
    """`A+B` -> both text forms; A is `ngram` or `ngram:N`, B anything, even with a plus. Raises UsageError."""
    first, _, second = argument.partition("+")
    name = first.partition(":")[0]
    if name != COPIES or not second:
        raise UsageError(
            "drafter 'hybrid' needs two drafters of which the first is ngram, as in "
            f"hybrid:ngram+draft_model:owner/name, not {argument!r}"
        )
    check(first)
    if parse(second)[0] in NOT_INSIDE:
        raise UsageError(f"a hybrid cannot hold {second!r}: none, synthetic and another hybrid have no place in it")
    check(second)
    return first, second


def _make(parts: tuple[str, str], context: DrafterContext) -> HybridDrafter:
    first, second = parts
    if first == COPIES and not context.auto_k:
        first = f"{COPIES}:{MIN_MATCH}"
    return HybridDrafter(make(first, context), make(second, context))


def _cache_bytes(parts: tuple[str, str], loaded: Any, k: int, length: int, progress: Progress) -> int:
    return sum(cache_bytes(part, loaded, k, length, progress) for part in parts)


def _most_drafts(parts: tuple[str, str], loaded: Any, progress: Progress) -> int:
    return min(most_drafts(part, loaded, progress) for part in parts)


KIND = Kind(parts_of, _make, label="{}, else {}", table="parts", cache_bytes=_cache_bytes, most_drafts=_most_drafts)
