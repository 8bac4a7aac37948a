"""Short answers with the log-probability of each token, as their server reports it, and whether two of them are the
same: bit for bit, but for rounding, or not."""

from collections.abc import Sequence
from dataclasses import replace

from ...analysis.same import are_alike
from ...analysis.verdict_words import capital
from ...remote.odds import Token
from ...remote.reply import Reply
from ...remote.request import CHAT_ODDS, NAMES, ODDS, Question
from ..findings import Finding, Level
from .compare_texts import NEAR_TIE
from .pair import Pair
from .sampling import BATCHES

NUM_RANKS = 5  # likeliest tokens of which servers are asked; OpenAI's own completions give no more
LEVELS: tuple[Level, ...] = ("fault", "doubt", "untested", "ok")  # the first that any server has counts
BROKEN = "Report it to the server's developers: rounding does not explain it"


def scored(question: Question, **more: float) -> Question:
    """The question with the wish for log-probabilities, and more fields. In a chat vLLM counts the written token among
    the likeliest ones."""
    odds = {CHAT_ODDS: NUM_RANKS + 1, ODDS: True} if question.messages else {ODDS: NUM_RANKS}
    return replace(question, more={**NAMES, **more, **odds})


def _tokens(reply: Reply) -> Sequence[Token]:
    """Its tokens; its characters if the server does not give the log-probability of each."""
    tokens = reply.tokens
    return tokens if all(token.logprob is not None for token in tokens) else [Token(letter) for letter in reply.text]


def _apart(a: Sequence[Token], b: Sequence[Token]) -> float | None:
    """None if a log-probability is missing, or one answer ends where the other goes on."""
    worst = 0.0
    for x, y in zip(a, b, strict=False):
        if x.logprob is None or y.logprob is None:
            return None
        worst = max(worst, abs(x.logprob - y.logprob))
        if x.name != y.name:
            return worst
    return worst if len(a) == len(b) else None


def agreed(check: str, pair: Pair, answers: Sequence[Sequence[tuple[Reply, Reply]]], what: str) -> Finding:
    """Whether each server's two answers to a question are the same. Named is the largest difference, in nats, of the
    log-probabilities of what was written, up to the first other token and including it: near a tie of two tokens that
    is rounding too.

    answers: for each server, pairs of answers; one without any token is not compared.
    what: what both answers are (`at once as one by one`)."""
    says, levels = list[str](), list[Level]()
    for server, pairs in zip(pair.servers, answers, strict=True):
        both = [(_tokens(a), _tokens(b)) for a, b in pairs]
        alike = [are_alike(*([token.name for token in tokens] for tokens in pair)) for pair in both]
        num, num_same = len(alike) - alike.count(None), alike.count(True)
        gaps = [_apart(a, b) for a, b in both]
        gap = None if None in gaps else max((gap for gap in gaps if gap), default=0.0)
        is_large = gap is not None and gap > NEAR_TIE
        odds = f"up to {gap:.2g} nats apart{'' if is_large else ', as rounding makes them'}" if gap else "bit for bit"
        odds = "no log-probabilities" if gap is None else f"log-probabilities {odds}"
        says.append(f"{server.lane}: {num_same} of {num} answers are the same {what}, {odds}")
        levels.append("untested" if not num else "fault" if is_large else "ok" if num_same == num else "doubt")
    level = next(level for level in LEVELS if level in levels)
    return Finding(level, check, f"{capital('; '.join(says))}.", {"fault": BROKEN, "doubt": BATCHES}.get(level, ""))
