"""Does a server speculate? On, off and not known are three answers, and each needs its evidence. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from .metrics import ACCEPTED, DRAFTED, DRAFTS, GENERATED, VERIFIED, Counters, per_step
from .reply import Reply

# Tokens of a piece from which a server speculates, and up to which it does not.
SEVERAL, ONE = 1.2, 1.02
NONE = "it reports drafts, and made none here"


@dataclass(frozen=True)
class Speculation:
    """is_on: None if unknown. says: the evidence, a clause. num_accepted: draft tokens. num_drafted: tokens, or drafts
    where only these are counted; None if neither is."""

    is_on: bool | None
    says: str
    num_accepted: float | None = None
    num_drafted: float | None = None


def speculation_of(replies: Sequence[Reply], before: Counters, after: Counters) -> Speculation:
    """By the answers' own reports, else by the server's counters before and after them, else by how many tokens their
    pieces carry. "Off" is certain only of a server that would count its drafts, with pieces of one token each."""
    own = [reply.drafted for reply in replies if reply.drafted is not None]
    num_tokens = sum(reply.num_tokens or 0 for reply in replies)
    if own:
        return _reported(sum(d.num_accepted or 0 for d in own), [d.num_drafted for d in own], num_tokens)
    sizes = [size for reply in replies for size in reply.sizes]
    together = sum(sizes) / len(sizes) if sizes else None
    size = "one token" if together is not None and together <= ONE else f"{together or 0:.2f} tokens"
    come = "" if together is None else f"a piece of its answers has {size}"
    num_accepted, num_drafted = after.since(before, ACCEPTED), after.since(before, DRAFTED)
    num_drafts = after.since(before, DRAFTS, VERIFIED, DRAFTED)
    if num_drafts:
        if doubt := per_step(before, after, len(replies), sum(sizes), len(sizes))[1]:
            return Speculation(True, f"{doubt}: it counts other requests as well")
        drafted = f"{num_drafted:g} drafted tokens" if num_drafted else f"{num_drafts:g} drafts"
        says = f"its metrics count {'' if num_accepted is None else f'{num_accepted:g} accepted ones of '}{drafted}"
        return Speculation(True, says, num_accepted, num_drafted or num_drafts)
    if together is not None and together >= SEVERAL:
        still = ", though its metrics count no draft (another replica's?)" if after.has_drafts else ""
        return Speculation(True, f"{come}{still}")
    if together is not None and together <= ONE:
        if before.has_drafts and num_drafts == 0:
            return Speculation(False, f"its metrics count no draft, and {come} (off, or nothing to draft)")
        if GENERATED in after.values and not after.has_drafts:  # else a router's, or of a server that counts no drafts
            return Speculation(False, f"its metrics count no drafts at all, and {come}")
    return Speculation(None, f"it reports no drafts{f', and {come}' if come else ''}")


def _reported(num_accepted: int, drafted: Sequence[int | None], num_tokens: int) -> Speculation:
    if None in drafted:
        says = f"it accepted {num_accepted} drafted tokens of {num_tokens} that it wrote"
        return Speculation(True, says, num_accepted)
    num_drafted = sum(num or 0 for num in drafted)
    share = num_accepted / num_drafted if num_drafted else 0
    says = f"it accepted {num_accepted} of {num_drafted} drafted tokens ({share:.0%})" if num_drafted else NONE
    return Speculation(True, says, num_accepted, num_drafted)
