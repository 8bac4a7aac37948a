"""Does the speculative server write the plain one's text at temperature 0? Each first difference is classified by how
likely the plain server calls both tokens when it is asked again at the same prefix."""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...analysis.same import State, are_alike, differs_at
from ...core.spec import SamplingParams
from ...recordings.words import ROUNDING
from ...remote.client import RemoteError
from ...remote.dialects import VLLM
from ...remote.endpoint import hide
from ...remote.request import NAMES, ODDS, Question
from ..findings import Finding
from .pair import Pair, Server, symbols, written
from .sampling import BATCHES

WHOLE: tuple[State, State] = ("finished", "finished")
# In nats: two logits were equal. Otherwise they differ by a multiple of a step of bfloat16 or float16.
EXACT_TIE = 1e-4
# In nats: two tokens whose log-probabilities differ by no more can change places by rounding. It is four steps of
# bfloat16 for logits from 16 to 32, and a little for their own rounding: in each of two runs a logit is off by half a
# step, and by as much again from the hidden state. Of 501 first differences of a healthy vLLM the largest was 0.25
# (assets/results/cpu_zen5_2core_first_differences.json).
NEAR_TIE = 0.501
TIE, NEAR, FAULT, UNKNOWN = "exact tie", "near tie", "real fault", "cannot be classified"
NUMERICS = "the plain server contradicts itself"
OTHER_MODEL = "preferred by the speculative server without drafts as well"
KINDS = TIE, NEAR, UNKNOWN, NUMERICS, OTHER_MODEL, FAULT  # the worst last
NUM_CHARACTERS, MOST_OF_A_WORD = 40, 20
FAULTS = {
    FAULT: "Turn speculation off, and send the finding on texts to the server's developers",
    OTHER_MODEL: "Serve both with the same weights, --dtype and quantisation, then check again",
}
MOST_NATS = 20.0
NUM_LIKELIEST = 20  # the most that vLLM gives unless it is started with more
SHOW_ODDS = "Use servers that name their tokens and give log-probabilities"
Odds = Mapping[str, float]  # log-probabilities of the likeliest tokens, in order; {} if a server does not say


@dataclass(frozen=True)
class Difference:
    """The first difference of an answer.

    kind: one of KINDS.
    margin: by how many nats the plain server prefers its own token; None if unknown.
    says: where it is, how both texts go on, and how likely the plain server calls both tokens."""

    kind: str
    margin: float | None
    says: str


def classify(ours: str, theirs: str, plain: Odds, drafting: Odds) -> tuple[str, float | None]:
    """One of KINDS, and the margin. ours, theirs: the first token of the plain and of the speculative server that
    differs. plain, drafting: how likely each server finds tokens there when it answers with one, which nobody drafts.
    """
    if not plain:
        return UNKNOWN, None
    margin = plain[ours] - plain[theirs]
    if abs(margin) <= NEAR_TIE:
        return (TIE if abs(margin) <= EXACT_TIE else NEAR), margin
    if next(iter(plain)) != ours:
        return NUMERICS, margin
    return OTHER_MODEL if next(iter(drafting), "") == theirs else FAULT, margin


async def texts(pair: Pair) -> list[Finding]:
    """Compares the answers at temperature 0."""
    if pair.is_alone:
        return []
    pair.progress("comparing the texts", None)
    answers = enumerate(zip(*(server.answers[0] for server in pair.servers), strict=True))
    compared = [i for i, both in answers if are_alike(*map(written, both)) is not None]
    differences = list(filter(None, await asyncio.gather(*(_differ(pair, i) for i in compared))))
    num = len(compared)
    if not num:
        return [Finding("untested", "texts", "Neither server's answers have a text, so nothing could be compared.")]
    if not differences:
        num_tokens = sum(reply.num_tokens or 0 for reply in pair.plain.answers[0])
        return [Finding("ok", "texts", f"The same at temperature 0: {num} of {num}, {num_tokens} tokens.")]
    kinds = Counter(difference.kind for difference in differences)
    counts = ", ".join(f"{kinds[kind]} \u00d7 {kind}" for kind in KINDS if kinds[kind])
    worst = max(differences, key=lambda difference: (KINDS.index(difference.kind), abs(difference.margin or 0)))
    says = (
        f"{len(differences)} of {num} answers differ at temperature 0 (one question is a text that repeats itself). At "
        f"their first difference: {counts}. {'The worst: ' * (len(differences) > 1)}{worst.says}"
    )
    if worst.kind in FAULTS:
        return [Finding("fault", "texts", says, FAULTS[worst.kind])]
    if worst.kind in (UNKNOWN, NUMERICS):
        odds = SHOW_ODDS + ("" if all(server.seen.dialect is VLLM for server in pair.servers) else " (vLLM does)")
        return [Finding("doubt", "texts", says, odds if worst.kind == UNKNOWN else BATCHES)]
    return [Finding("ok", "texts", f"{says} {ROUNDING}")]


async def _differ(pair: Pair, number: int) -> Difference | None:
    """The first difference of both answers to a question; None if there is none."""
    replies = [server.answers[0][number] for server in pair.servers]
    (ours,), (theirs,) = symbols([[reply] for reply in replies])
    if (at := differs_at(ours, theirs, WHOLE)) is None:
        return None
    asked = _asked(pair.questions[number], number == len(pair.questions) - 1)
    where = f"{hide(asked, pair.secrets)}, {'token' if replies[0].token_ids else 'character'} {at + 1}"
    names = [server.endpoint.lane for server in pair.servers]
    if at == min(len(ours), len(theirs)):
        return Difference(UNKNOWN, None, f"{where}: lane {names[len(ours) > at]} ends there and the other goes on.")
    prompt_ids, tokens = replies[0].prompt_ids, (ours[at], theirs[at])
    odds: Sequence[Odds] = ({}, {})
    if prompt_ids and isinstance(tokens[0], int):
        again = (_ask_again(server, (*prompt_ids, *ours[:at]), tokens) for server in pair.servers)  # type: ignore[arg-type]
        odds = await asyncio.gather(*again)
    kind, margin = classify(_name(tokens[0]), _name(tokens[1]), *odds)
    texts_ = [hide(reply.text, pair.secrets) for reply in replies]
    parts = differs_at(texts_[0], texts_[1], WHOLE)
    shown = len(texts_[0]) if parts is None else parts
    word = texts_[0].rfind(" ", 0, shown) + 1
    shown = word if shown - word <= MOST_OF_A_WORD else shown
    ways = [f"lane {name} writes {_short(text[shown:])}" for name, text in zip(names, texts_, strict=True)]
    says = f"{where}, after {_short(texts_[0][:shown], tail=True)}: {' and '.join(ways)}"
    if margin is not None:
        says += f"; asked again, lane {names[0]} calls its own token {_times(margin)} likelier ({margin:.3g} nats)"
    return Difference(kind, margin, f"{says}.")


async def _ask_again(server: Server, prefix: tuple[int, ...], tokens: Sequence[int]) -> Odds:
    """How likely tokens are after the prefix, these among them; {} if the server does not say, or takes no tokens as a
    prompt. A vLLM that speculates answers 500 if tokens are named, and is then asked for the likeliest ones."""
    for named in ({"logprob_token_ids": list(tokens)}, {}):
        question = Question(token_ids=prefix, more={**NAMES, ODDS: NUM_LIKELIEST, **named})
        try:
            reply = await server.ask(question, SamplingParams(max_new_tokens=1))
        except RemoteError as error:
            if error.status is None:
                return {}
            continue
        odds = dict(reply.tokens[0].likeliest if reply.tokens else ())
        return odds if odds.keys() >= set(map(_name, tokens)) else {}
    return {}


def _name(token: int | str) -> str:
    """What a server calls a token that it was asked to name by its id, see `NAMES`."""
    return f"token_id:{token}"


def _asked(question: Question, repeats: bool) -> str:
    """What sentences call a question: its beginning."""
    text = question.messages[-1][1] if question.messages else question.text
    return "The text that repeats itself" if repeats else f"Question {_short(' '.join(text.split()))}"


def _times(nats: float) -> str:
    times = math.exp(min(nats, MOST_NATS))
    return f"{'over ' * (nats > MOST_NATS)}{times:,.0f} times" if times >= 10 else f"{times:.2g} times"


def _short(text: str, tail: bool = False) -> str:
    cut = text[-NUM_CHARACTERS:] if tail else text[:NUM_CHARACTERS]
    return json.dumps(cut, ensure_ascii=False) if cut else "nothing"
