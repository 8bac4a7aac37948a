"""What stands beside a ratio: loops are told from texts that only repeat words, and noise from a difference."""

import json
import math
import random
import re
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.analysis.loops import (
    LOOKED_AT,
    LOOPS_ABOVE,
    MOSTLY,
    SHORTEST,
    SHORTEST_COPY,
    copied_share,
    copies_sentence,
    loop_sentence,
    loop_start,
    repeated_share,
    with_counters,
)
from engine.analysis.metrics import is_noise, ratio_noise
from engine.core.events import Step
from tests.helpers import FIXTURES

READ, YEARS = (json.loads((FIXTURES / f"{name}.json").read_text())["rows"] for name in ("loops", "loops_by_year"))


def test_loops_are_told_as_a_person_told_them() -> None:
    """A table called a loop insults a good drafter; a loop that is not called one sells itself as 12x."""
    wrong = [
        (row["prompt"], row["temperature"])
        for row in READ
        if (loop_sentence(row["token_ids"]) is not None) != row["loops"]
    ]
    assert len(READ) == 40 and len(wrong) <= 1, wrong
    assert {row["loops"] for row in READ} == {True, False}


COUNTS = {
    "".join(f"{i}. Look at the first one again.\n" for i in range(1, 14)): True,
    "".join(f"item {i}, and then the other one\n" for i in range(95, 108)): True,
    "".join(f'{{"event": "click", "target": "buy", "ts": {i}}}\n' for i in range(1716842, 1716855)): False,
    "".join(
        f"{word},{i},red,small\n" for i, word in enumerate(("ash", "elm", "fig", "oak", "yew", "gum", "bay"))
    ): False,
    "".join(f"WHERE day >= '{year}-01-01' AND day < '{year + 1}-01-01';\n" for year in range(2014, 2027)): False,
    "".join(f"7 times {i} is {7 * i}, as they say here\n" for i in range(2, 15)): False,
}


@pytest.mark.parametrize("text", COUNTS, ids=lambda text: text[:12])
@pytest.mark.parametrize("num_digits", [1, 3])
def test_a_loop_may_count_its_rounds(text: str, num_digits: int) -> None:
    """A list whose items are one item sells itself as 9x; data in rows would be called a loop."""
    done = steps_over(text, num_digits)
    assert (loop_sentence(with_counters(done)) is not None) == COUNTS[text]
    assert loop_sentence([step.token_ids[0] for step in done]) is None


def test_years_count_the_rounds_of_a_loop_as_a_person_reads_them() -> None:
    """'Revenue in 2022', 'in 2021', ... sold itself as 3.2x; a table by year would be called a loop."""
    wrong = [
        i for i, r in enumerate(YEARS) if (loop_sentence(with_counters(steps_over(r["text"]))) is None) == r["loops"]
    ]
    assert len(YEARS) == 28 and len(wrong) <= 2, [YEARS[i]["prompt"] for i in wrong]
    assert all(YEARS[i]["loops"] for i in wrong), "data was called a loop"


def steps_over(text: str, num_digits: int = 1) -> list[Step]:
    """A step for each piece of a text: a word, a sign or some digits."""
    pieces = re.findall(rf"\d{{1,{num_digits}}}| ?[^\W\d_]+|[^\w]|_", text)
    ids = {piece: i for i, piece in enumerate(dict.fromkeys(pieces), 1)}
    return [Step(i, i, (), 0, (ids[piece],), 0.0, 0.1, 1, (piece,)) for i, piece in enumerate(pieces)]


def by_definition(token_ids: list[int]) -> set[int]:
    """The places of all repeated tokens, found by trying every distance."""
    num, places = len(token_ids), set[int]()
    for back in range(1, num // 2 + 1):
        row = 0
        for i in range(back, num + 1):
            if i < num and token_ids[i] == token_ids[i - back]:
                row += 1
                continue
            if row >= max(back, SHORTEST):
                places.update(range(i - row, i))
            row = 0
    return places


REPEATED = st.builds(
    lambda start, block, times, end: [*start, *block * times, *end],
    *(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=24)),
    *(st.integers(0, 9), st.lists(st.integers(0, 2), max_size=12)),
)


@settings(max_examples=300)
@given(REPEATED | st.lists(st.integers(0, 1), max_size=80) | st.integers(0, 60).map(lambda num: [7] * num))
def test_the_fast_search_finds_what_the_definition_says(token_ids) -> None:
    """A share a little too small or too large, and a loop that is called none; the search looks at few places only."""
    wanted = by_definition(token_ids)
    assert repeated_share(token_ids) == (len(wanted) / len(token_ids) if token_ids else 0)
    rows = [list(row) for copied, row in groupby(range(len(token_ids)), wanted.__contains__) if copied]
    loops = repeated_share(token_ids) > LOOPS_ABOVE
    assert loop_start(token_ids) == (max(rows, key=len)[0] if loops else None)


def test_of_a_long_text_the_beginning_is_searched() -> None:
    """A text that a stranger made as long as he likes would take as long as he likes."""
    loop = [7] * (LOOKED_AT // 2)
    assert repeated_share([*range(LOOKED_AT), *loop]) == 0
    assert loop_start([*range(10, LOOKED_AT // 2 + 10), *loop, *range(LOOKED_AT)]) == LOOKED_AT // 2 + 1


def by_trying(prompt: str, text: str) -> float:
    """The share of copied characters, found by trying every place."""
    copied = {at for i in range(len(text) - SHORTEST_COPY + 1) if text[i : i + SHORTEST_COPY] in prompt
              for at in range(i, i + SHORTEST_COPY)}  # fmt: skip
    return len(copied) / len(text) if text else 0.0


@given(st.text("ab", max_size=300), st.text("ab", max_size=60), st.data())
def test_what_is_copied_from_the_prompt_is_found(prompt, own, data) -> None:
    """A text that repeats its prompt sells itself as 9x, or an own text is said to copy."""
    text = own + prompt[data.draw(st.integers(0, len(prompt))) :]
    assert copied_share(prompt, text) == by_trying(prompt, text)
    assert (copies_sentence(prompt, text) is None) == (by_trying(prompt, text) < MOSTLY)


def lane(times: list[float], width: int = 1) -> list[Step]:
    return [Step(i, i, (), 0, (7,), 0.0, time, width, ("a",), (), ()) for i, time in enumerate(times)]


def test_the_noise_of_a_ratio_is_what_the_same_race_run_again_would_show() -> None:
    """Equal lanes would differ in more than one race of twenty, or a slowing machine count as noise."""
    rng, alarms, slower = random.Random(1), 0, 0
    for _ in range(400):
        drift = [1 + 0.3 * i / 100 for i in range(100)]
        a, b = ([d * rng.gauss(0.01, 0.001) for d in drift] for _ in range(2))
        noise = ratio_noise(lane(a), lane(b))
        alarms += not is_noise(sum(a) / sum(b), noise)
        slower += not is_noise(1.1 * sum(a) / sum(b), noise)
    assert 2 <= alarms <= 45
    assert slower >= 395


def test_where_nothing_repeats_no_noise_is_made_up() -> None:
    """One step of each kind says nothing of scatter."""
    assert ratio_noise(lane([0.01]), lane([0.01, 0.02])) is None
    assert not is_noise(1.001, None) and is_noise(1.001, 0.01) and not is_noise(math.e, 0.5)
    assert 0 < LOOPS_ABOVE < 1
