"""Is speculation on, and does it keep anything?"""

from __future__ import annotations

from ...analysis.verdict_words import capital
from ...remote.served_options import option_words
from ...remote.speculation import Speculation, speculation_of
from ..findings import Finding
from .pair import Pair, Server

HEAD = "Examine the drafter alone: python -m engine doctor --target TARGET --drafter eagle3:HEAD (or dflash:HEAD)"
# Up to this share of accepted tokens a drafter knows nothing about its target: in a text that repeats itself, even
# copies are right more often.
NOTHING = 0.03
MIN_DRAFTED = 12  # drafted tokens below which nothing is said about them


async def drafts(pair: Pair) -> list[Finding]:
    """Asks all questions at temperature 0, and judges what the servers say about their drafts. Raises RemoteError."""
    await pair.answer()
    findings, drafting = [], _drafts_of(pair.drafting)
    if not pair.is_alone:
        plain = _drafts_of(pair.plain)
        if plain.is_on:
            says = f"{capital(pair.plain.lane)} speculates too: {plain.says}."
            change = f"Start the server of {pair.plain.lane} without speculation, or give the plain one first"
            findings.append(Finding("doubt", "plain lane", says, change))
    says, name = f"{capital(pair.drafting.lane)}: {drafting.says}.", pair.drafting.dialect.name
    if drafting.is_on is None:
        change = f"Make the server report its drafts ({option_words(name, 'report')})"
        return [*findings, Finding("untested", "speculation", says, "" if pair.is_alone else change)]
    if not drafting.is_on:
        if not pair.is_alone:
            change = f"Turn it on: {option_words(name, 'ngram', 'eagle3')}"
            return [*findings, Finding("fault", "speculation", says, change)]
    elif drafting.num_drafted is None or drafting.num_accepted is None:
        pass
    elif drafting.num_drafted < MIN_DRAFTED:
        change = "Use a drafter that always drafts (a head or a draft model), or prompts whose text repeats"
        return [*findings, Finding("doubt", "speculation", says, change)]
    elif drafting.num_accepted <= NOTHING * drafting.num_drafted:
        return [*findings, Finding("fault", "acceptance", says, HEAD)]
    return [*findings, Finding("ok", "speculation", says)]


def _drafts_of(server: Server) -> Speculation:
    return speculation_of(server.answers[0], server.before, server.after)
