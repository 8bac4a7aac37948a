"""Is speculation on, and does it keep anything?"""

from __future__ import annotations

from dataclasses import dataclass

from ...remote.reply import Reply
from ..findings import Finding
from .pair import Pair, Server

OPTIONS = {
    "vLLM": 'vllm serve ... --speculative-config \'{"method": "ngram", "num_speculative_tokens": 4, '
    '"prompt_lookup_max": 3}\' (or eagle3 with its head as "model")',
    "SGLang": "--speculative-algorithm EAGLE3 --speculative-draft-model-path HEAD",
    "llama.cpp": "--model-draft DRAFT.gguf --spec-draft-n-max 4",
}  # what turns speculation on, by the kind of server
HEAD = "Examine the drafter alone: python -m engine doctor --target TARGET --drafter eagle3:HEAD (or dflash:HEAD)"
# Up to this share of accepted tokens a drafter knows nothing about its target: in a text that repeats itself, even
# copies are right more often.
NOTHING = 0.03
MIN_DRAFTED = 12  # drafted tokens below which nothing is said about them
# Tokens per chunk from which a server that reports nothing speculates, and up to which it does not.
SEVERAL, ONE = 1.2, 1.02


@dataclass(frozen=True)
class Drafts:
    """is_on: None if unknown. says: the evidence, without a full stop. num_drafted: tokens, or drafts where only these
    are counted; None if neither is."""

    is_on: bool | None
    says: str
    num_accepted: float = 0
    num_drafted: float | None = None


async def drafts(pair: Pair) -> list[Finding]:
    """Asks all questions at temperature 0, and judges what the servers say about their drafts. Raises RemoteError."""
    await pair.answer()
    findings, drafting = [], drafts_of(pair.drafting)
    if not pair.is_alone:
        plain = drafts_of(pair.plain)
        if plain.is_on:
            says = f"{_begin(pair.plain)} speculates too: {plain.says}."
            change = f"Start the server of {pair.plain.lane} without speculation, or give the plain one first"
            findings.append(Finding("doubt", "plain lane", says, change))
    says, kind = f"{_begin(pair.drafting)}: {drafting.says}.", pair.drafting.kind
    if drafting.is_on is None:
        change = "Make the server report its drafts (vLLM: --per-request-spec-decode-metrics detailed)"
        return [*findings, Finding("untested", "speculation", says, "" if pair.is_alone else change)]
    if not drafting.is_on:
        options = OPTIONS.get(kind) or "; ".join(f"{name}: {option}" for name, option in OPTIONS.items())
        if not pair.is_alone:
            return [*findings, Finding("fault", "speculation", says, f"Turn it on: {options}")]
    elif drafting.num_drafted is None:
        pass
    elif drafting.num_drafted < MIN_DRAFTED:
        change = "Use a drafter that always drafts (a head or a draft model), or prompts whose text repeats"
        return [*findings, Finding("doubt", "speculation", says, change)]
    elif drafting.num_accepted <= NOTHING * drafting.num_drafted:
        return [*findings, Finding("fault", "acceptance", says, HEAD)]
    return [*findings, Finding("ok", "speculation", says)]


def drafts_of(server: Server) -> Drafts:
    """From the answers at temperature 0: by their own counts, else by the server's metrics, else by how many tokens
    came together."""
    replies = server.answers[0]
    own = [reply.drafted for reply in replies if reply.drafted is not None]
    if own:
        num_accepted, num_drafted = sum(count.num_accepted for count in own), sum(count.num_drafted for count in own)
        share = f" ({num_accepted / num_drafted:.0%})" if num_drafted else ""
        says = f"it accepted {num_accepted} of {num_drafted} drafted tokens{share}"
        return Drafts(True, says, num_accepted, num_drafted)
    num_tokens = sum(reply.num_tokens or 0 for reply in replies)
    if server.before and server.after:
        kept = server.after.num_accepted - server.before.num_accepted
        num_drafts = server.after.num_drafts - server.before.num_drafts
        says = f"its metrics count {kept:g} accepted tokens in {num_drafts:g} drafts"
        return Drafts(True, says, kept, num_drafts)
    if server.kind == "llama.cpp" or (server.seen and "\nvllm:" in server.seen.metrics):
        return Drafts(False, f"speculation is off: no draft is reported in {num_tokens} tokens")
    together = num_tokens / max(1, sum(_num_arrivals(reply) for reply in replies))
    says = f"it reports no drafts, and {together:.2f} tokens come at a time"
    if server.kind == "SGLang" and together <= ONE:
        return Drafts(False, says)
    return Drafts(True if together >= SEVERAL else None, says)


def _num_arrivals(reply: Reply) -> int:
    return len({chunk.at_s for chunk in reply.chunks})


def _begin(server: Server) -> str:
    return f"Lane {server.endpoint.lane}"
