"""Are the servers there, and do they serve the same model with the same tokenizer and chat template? Is speculation
on, and does it keep anything?"""

import asyncio
from collections.abc import Sequence

from ...analysis.verdict_words import capital
from ...remote.look import look
from ...remote.reply import Reply
from ...remote.served_options import option_words
from ...remote.speculation import Speculation, speculation_of
from ..findings import Finding
from .pair import Pair, Server

SAME_TEMPLATE = "Start both servers with the same tokenizer and chat template (vLLM: --tokenizer, --chat-template)"
SAME_MODEL = "Serve the same model on both, and give its name (--model NAME, or --model LANE=NAME for each)"
COUNT = "Look into the log of the server of {0}: its answer has no text"
REACH = "Start the server of {0}, or correct its URL in --lane"
NAME = "Correct the URL of {0} in --lane, its name of the model (--model) or its key"
TRUST = "Give the certificate of its authority: --cacert FILE"
READ = "Look into the log of the server of {0}: its answer is not as OpenAI's clients read it"
HELP = {"connect": REACH, "timeout": REACH, "certificate": TRUST, "broken": READ}  # by kind of error
HEAD = "Examine the drafter alone: python -m engine doctor --target TARGET --drafter eagle3:HEAD (or dflash:HEAD)"
# Up to this share of accepted tokens a drafter knows nothing about its target: in a text that repeats itself, even
# copies are right more often.
NOTHING = 0.03
MIN_DRAFTED = 12  # drafted tokens below which nothing is said about them


async def identity(pair: Pair) -> list[Finding]:
    """Findings about what the servers are. Where one is a fault, nothing else can be compared."""
    pair.progress("looking at the servers", None)
    seen = await asyncio.gather(*(look(server.endpoint) for server in pair.servers))
    findings: list[Finding] = []
    for server, result in zip(pair.servers, seen, strict=True):
        server.seen, server.endpoint = result, result.endpoint or server.endpoint
        if result.endpoint is None:
            kind = result.error.kind if result.error else ""
            change = (COUNT if result.reply else HELP.get(kind, NAME)).format(server.lane)
        elif result.chat and not pair.chat:
            change = "Send the prompts as chat messages: --chat"
        else:
            continue
        findings.append(Finding("fault", "reachable", f"{capital(server.lane)}: {result.sentence}", change))
    if findings:
        return findings
    says = " ".join(
        f"{capital(server.lane)}: {server.seen.dialect.name or 'a server'} with {server.model}."
        for server in pair.servers
    )
    findings.append(Finding("ok", "reachable", says))
    if pair.is_alone:
        return findings
    findings += [_model(pair), _prompt("tokenizer", "a text", [server.seen.reply for server in pair.servers])]
    chats = [server.seen.chat_reply for server in pair.servers]
    refusing = [server.lane for server, chat in zip(pair.servers, chats, strict=True) if chat is None]
    if len(refusing) == 1:
        says = f"Only {refusing[0]} refuses chat messages."
        findings.append(Finding("fault", "chat template", says, SAME_TEMPLATE))
    elif not refusing:
        findings.append(_prompt("chat template", "a chat", chats))
    return findings


def _model(pair: Pair) -> Finding:
    roots, names = [server.seen.root for server in pair.servers], [server.model for server in pair.servers]
    is_one, are_known = roots[0] == roots[1], all(roots)
    if names[0] == names[1] and (is_one or not are_known):
        return Finding("ok", "model", f"Both serve {names[0]}.")
    if is_one and are_known:
        return Finding("ok", "model", f"Both serve {roots[0]}, as {names[0]} and {names[1]}.")
    served = [f"{name} (from {root})" if root else name for name, root in zip(names, roots, strict=True)]
    says = f"{capital(pair.plain.lane)} serves {served[0]}, {pair.drafting.lane} {served[1]}."
    return Finding("fault" if names[0] != names[1] else "doubt", "model", says, SAME_MODEL)


def _prompt(check: str, what: str, replies: Sequence[Reply | None]) -> Finding:
    """Whether both servers read the same prompt as the same tokens."""
    a, b = replies
    assert a is not None and b is not None
    ids = a.prompt_ids, b.prompt_ids
    are_known = all(ids)
    nums = tuple(map(len, ids)) if are_known else (a.num_prompt_tokens, b.num_prompt_tokens)
    if None in nums:
        return Finding("untested", check, f"They do not both say how many tokens {what} has.")
    if nums[0] != nums[1] or (are_known and ids[0] != ids[1]):
        at = next((i for i, (x, y) in enumerate(zip(*ids, strict=False)) if x != y), None) if are_known else None
        where = f"; the first that differs is number {at + 1}" if at is not None else ""
        says = f"They read {what} as {nums[0]} and {nums[1]} tokens{where}."
        return Finding("fault", check, says, SAME_TEMPLATE)
    if are_known:
        return Finding("ok", check, f"Both read {what} as the same {nums[0]} token{'s' * (nums[0] != 1)}.")
    return Finding("ok", check, f"Both read {what} as {nums[0]} tokens; they do not say which.")


async def drafts(pair: Pair) -> list[Finding]:
    """Asks all questions at temperature 0, and judges what the servers say about their drafts. Raises RemoteError."""
    await pair.answer()
    findings, drafting = [], _drafts_of(pair.drafting)
    if not pair.is_alone and (plain := _drafts_of(pair.plain)).is_on:
        says = f"{capital(pair.plain.lane)} speculates too: {plain.says}."
        change = f"Start the server of {pair.plain.lane} without speculation, or give the plain one first"
        findings.append(Finding("doubt", "plain lane", says, change))
    says, name = f"{capital(pair.drafting.lane)}: {drafting.says}.", pair.drafting.seen.dialect.name
    if drafting.is_on is None:
        change = f"Make the server report its drafts ({option_words(name, 'report')})"
        return [*findings, Finding("untested", "speculation", says, "" if pair.is_alone else change)]
    if not drafting.is_on and not pair.is_alone:
        change = f"Turn it on: {option_words(name, 'ngram', 'eagle3')}"
        return [*findings, Finding("fault", "speculation", says, change)]
    if drafting.is_on and drafting.num_drafted is not None and drafting.num_accepted is not None:
        if drafting.num_drafted < MIN_DRAFTED:
            change = "Use a drafter that always drafts (a head or a draft model), or prompts whose text repeats"
            return [*findings, Finding("doubt", "speculation", says, change)]
        if drafting.num_accepted <= NOTHING * drafting.num_drafted:
            return [*findings, Finding("fault", "acceptance", says, HEAD)]
    return [*findings, Finding("ok", "speculation", says)]


def _drafts_of(server: Server) -> Speculation:
    return speculation_of(server.answers[0], server.before, server.after)
