"""No drafts: with it the loop is plain decoding. Standard library only."""

from collections.abc import Sequence
from typing import Any

from ..core.errors import UsageError
from ..core.interfaces import Draft, Drafter
from . import Kind


class NoDrafter(Drafter):
    """Proposes nothing."""

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        pass

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        return Draft()


def no_argument(argument: str) -> None:
    """Raises UsageError if there is one."""
    if argument:
        raise UsageError(f"drafter 'none' takes no argument, not {argument!r}")


KIND = Kind(
    parse=no_argument,
    make=lambda argument, context: NoDrafter(),
    label="no guesses (plain decoding twice)",
    weightless=True,
)
