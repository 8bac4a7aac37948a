"""Whether a text loops, or copies its prompt, which makes it the easiest to guess. Standard library only."""

import math
import re
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from ..core.events import Step
from .metrics import share

SHORTEST = 8  # tokens in the shortest copy that counts
LOOPS_ABOVE = 1 / 3
NUMBER = re.compile(" *[0-9]+")
MOST_DIGITS = 3  # longer numbers are times and keys, which do not count a loop's rounds, except for years
YEARS = range(1000, 3000)
JOINTS = "-/:."  # between two numbers they make a date, a time or a range
COUNTER = -1
LOOKED_AT = 10_000  # tokens of a text that are searched for copies, ten times the limit of a race on the page
# Of copies of a prompt: characters of the shortest that counts, and of a (stranger's) text that are searched.
SHORTEST_COPY, MOSTLY, MOST_CHARACTERS = 24, 0.5, 40_000


def with_counters(done: Sequence[Step]) -> list[int]:
    """The tokens of these steps, for the functions below, with COUNTER for each token of a number that counts: of a
    small one if the number before it in the text is one less, or the next one is one more; of a year, alone and not in
    a date, if the year before or after it is one less or one more. So "item 17", "item 18", ... is a loop, and so is
    "in 2022", "in 2021", .... All other numbers are data (docs/read_a_race.md)."""
    ids = [token for step in done for token in step.token_ids]
    pieces = [piece for step in done for piece in step.pieces or [""] * len(step.token_ids)]
    numbers = list[list[int]]()
    for i, piece in enumerate(pieces if any(ids) else ()):
        if NUMBER.fullmatch(piece) is None:
            continue
        if numbers and numbers[-1][-1] == i - 1 and piece[0] != " ":
            numbers[-1].append(i)
        else:
            numbers.append([i])
    texts = ["".join(pieces[i] for i in number).strip() for number in numbers]
    small = [int(text) if len(text) <= MOST_DIGITS else math.nan for text in texts]  # NaN is one away from nothing
    pairs = [(*both, y - x) for both, (x, y) in zip(pairwise(numbers), pairwise(small), strict=True)]
    joined = {i for a, b in pairwise(numbers) if b[0] - a[-1] == 2 and pieces[b[0] - 1] in JOINTS for i in (a[0], b[0])}
    years = [
        (number, int(text))
        for number, text in zip(numbers, texts, strict=True)
        if len(text) == 4 and int(text) in YEARS and number[0] not in joined
    ]
    pairs += [(before, after, abs(y - x)) for (before, x), (after, y) in pairwise(years)]
    for before, after, away in pairs:
        if away == 1:
            for i in before + after:
                ids[i] = COUNTER
    return ids


def repeated_share(token_ids: Sequence[int]) -> float:
    """The share of tokens that belong to a copy of the text right before it: a run of at least max(p, SHORTEST) tokens,
    each equal to the token p places earlier, so that a whole block repeats the previous one. Tables, lists and code
    repeat a shape, but their fields break such a run. Only the first LOOKED_AT tokens count.

    Checked against a person's reading of 40 completions of the held-out prompts (200 tokens, temperature 0 and 0.8) and
    the seven shipped races: LOOPS_ABOVE separates loops from the rest in 46 of 47. The share of 4-grams seen before
    does not: 71 % in a list of events, 59 % in a paragraph repeated over and over."""
    return share(_repeated(token_ids))


def loop_start(token_ids: Sequence[int]) -> int | None:
    """Index of the first token of a looping text's longest run of repeated tokens; None for any other text."""
    repeated = _repeated(token_ids)
    if share(repeated) <= LOOPS_ABOVE:
        return None
    runs = [list(run) for copied, run in groupby(range(len(repeated)), repeated.__getitem__) if copied]
    return max(runs, key=len)[0]


def loop_sentence(token_ids: Sequence[int]) -> str | None:
    """A warning to show with the ratio of a looping text. None for any other, and if all ids are 0 (a server that only
    counts its tokens)."""
    repeated = repeated_share(token_ids)
    if repeated <= LOOPS_ABOVE or not any(token_ids):
        return None
    return (
        f"The text repeats itself: {100 * repeated:.0f} % of it copies the text just before it, which is easy to guess."
    )


def _repeated(token_ids: Sequence[int]) -> list[bool]:
    """For each of the first LOOKED_AT tokens, whether it belongs to a copy (see `repeated_share`).

    n log n steps, not n^2, as the text may be hostile (Main and Lorentz 1984): block and copy lie in one half of the
    text, searched the same way, or span the middle. Then the middle token is compared with the one p places away, and
    the run extends as far as the text matches after and before the two."""
    token_ids = token_ids[:LOOKED_AT]
    changes = [0] * (len(token_ids) + 1)
    parts = [(0, len(token_ids))]
    while parts:
        low, high = parts.pop()
        if high - low <= SHORTEST:
            continue
        middle = (low + high) // 2
        parts += (low, middle), (middle, high)
        part, half = token_ids[low:high], middle - low
        ahead = _num_matching(part[half:], part)
        behind = _num_matching(part[:half][::-1], part[::-1])
        for away, after, before in zip(range(low - middle, high - middle + 1), ahead, reversed(behind), strict=True):
            if after + before >= SHORTEST and after + before >= abs(away) > 0:
                later = middle + max(away, 0)
                changes[later - before] += 1
                changes[later + after] -= 1
    return [num > 0 for num in accumulate(changes[:-1])]


def _num_matching(start: Sequence[int], text: Sequence[int]) -> list[int]:
    """For every place in the text, its end included: how many tokens from there on match the beginning of `start`. The
    Z algorithm: whatever lies in the match that reaches furthest has been compared already."""
    both = [*start, None, *text]
    lengths = [0] * (len(both) + 1)
    begins = ends = 0
    for i in range(1, len(both)):
        num = lengths[i - begins] if i < ends else 0
        if i + num >= ends:
            num = max(ends - i, 0)
            while i + num < len(both) and both[num] == both[i + num]:
                num += 1
            begins, ends = i, i + num
        lengths[i] = num
    return lengths[len(start) + 1 :]


def copied_share(prompt: str, text: str) -> float:
    """The share of the text's characters in verbatim copies of the prompt, of at least SHORTEST_COPY characters."""
    text = text[:MOST_CHARACTERS]
    starts: dict[str, list[int]] = {}
    for i in range(len(text) - SHORTEST_COPY + 1):
        starts.setdefault(text[i : i + SHORTEST_COPY], []).append(i)
    copied = bytearray(len(text))
    for i in range(len(prompt) - SHORTEST_COPY + 1):
        for at in starts.pop(prompt[i : i + SHORTEST_COPY], ()):
            copied[at : at + SHORTEST_COPY] = b"\1" * SHORTEST_COPY
    return sum(copied) / len(text) if text else 0.0


def copies_sentence(prompt: str, text: str) -> str | None:
    """A warning to show with the ratio of a text that mostly copies its prompt; None for any other."""
    copied = copied_share(prompt, text)
    if copied < MOSTLY:
        return None
    return f"{100 * copied:.0f} % of this text copies the prompt: expect this ratio only where yours do the same."
