"""Whether two lanes on servers wrote the same text. Graded leniently: different texts are nobody's fault here."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.same import Kind, Side, State, differs_at, short_words, worth
from ..analysis.verdict_words import NOT_COMPARED, VERDICTS
from .lane import RemoteLane

NUM_CHARACTERS = 40


@dataclass(frozen=True)
class Answer:
    """What a lane wrote. has_ids: whether its token ids are known. state: how it ended. num_thinking:
    characters of the text that come before its answer, if it thinks first."""

    lane: str
    text: str
    token_ids: Sequence[int]
    has_ids: bool
    state: State
    num_thinking: int


def answer_of(lane: RemoteLane) -> Answer:
    """What a server's lane has written so far."""
    written = lane.written
    state: State = "failed" if lane.failed else "finished" if lane.ended_s else "stopped"
    num_thinking = len("".join(written.pieces[: written.num_thinking])) if lane.reply.thinking else 0
    texts = lane.endpoint.lane, "".join(written.pieces), written.token_ids
    return Answer(*texts, written.has_ids, state, num_thinking)


def parts_at(a: Answer, b: Answer) -> int | None:
    """The first character at which two texts differ: see `differs_at`. A server that sends more than it was asked for
    fails, and does not show that the other ended too early."""
    failed: State = "failed"
    states = (a.state, b.state)
    return differs_at(a.text, b.text, (failed, failed) if failed in states else states)


def judge(a: Answer, b: Answer, why: str = "") -> dict[str, Any]:
    """The verdict on two lanes of one model, in a recording's form. If the texts differ it says where, how each
    continues, and `why`."""
    texts, names = [a.text, b.text], [a.lane, b.lane]
    both = f"{names[0]} and {names[1]}"
    ids = [a.token_ids, b.token_ids]
    num_common = min(map(len, ids))
    sides = [Side(answer.lane, len(answer.text), answer.state) for answer in (a, b)]
    at = parts_at(a, b)
    kind: Kind
    known = a.has_ids and b.has_ids
    place = next((i for i, (x, y) in enumerate(zip(*ids, strict=False)) if x != y), None) if known else None
    difference = None
    if at is None and (nothing := worth(sides, "character")):
        kind, sentence = "not_compared", f"{NOT_COMPARED}: {nothing}"
    elif at is None:
        num = min(map(len, texts))
        so_far = "" if a.state == b.state == "finished" else ", up to the length of the shorter one"
        kind = "same_text"
        sentence = f"{VERDICTS[kind].head}: {both} wrote the same {num} characters{so_far}"
        if known:
            sentence += f", in {'other' if place is not None else 'the same'} tokens"
    else:
        kind = "other_text"
        look_alike = not "".join(text[at : at + 1] for text in texts).isascii()
        ways = [f"{name} continues {_shown(text[at:], look_alike)}" for name, text in zip(names, texts, strict=True)]
        before = f"after {_shown(texts[0][max(0, at - NUM_CHARACTERS) : at])} (character {at})"
        where = before if at else "at the first character"
        sentence = f"{VERDICTS[kind].head}: {both} diverge {where}: {ways[0]}, {ways[1]}"
        if at < min(a.num_thinking, b.num_thinking):
            are_other = len({answer.text[answer.num_thinking :] for answer in (a, b)}) > 1
            sentence += f"; that is in the thinking, and the answers are {'other ones' if are_other else 'the same'}"
        if place is not None:
            tokens = [ids[0][place], ids[1][place]]
            pieces = [text[at : at + NUM_CHARACTERS] for text in texts]
            difference = {"position": place, "tokens": tokens, "pieces": pieces, "margin": None, "widths": [None, None]}
            sentence += f"; at token {place} their ids are {tokens[0]} and {tokens[1]}"
        sentence += why
    return {
        "kind": kind,
        "rows_compared": num_common if place is None else place + 1,
        "rows_different": None,
        "first_difference": difference,
        "sentence": sentence,
        "short": short_words(kind, sides, None, at, "character"),
    }


def _shown(text: str, with_code: bool = False) -> str:
    """The beginning of a text. with_code: with the number of its first character, since others may look like it."""
    if not text:
        return "nothing more"
    code = f" (U+{ord(text[0]):04X})" if with_code else ""
    return json.dumps(text[:NUM_CHARACTERS] + "…" * (len(text) > NUM_CHARACTERS), ensure_ascii=False) + code
