"""The words of the page: plain ones, with the field's term in a tooltip."""

from __future__ import annotations

from typing import Any

import pytest

from app.recorded import RACES

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_each_word_of_the_field_is_explained_where_it_stands(page: Any, temperature: float) -> None:
    """A plain word whose term nobody finds, or a term that nobody explains."""
    recording = (RACES / ("story.json" if temperature else "csv_to_json.json")).read_text()
    assert page.evaluate("text => window.photofinish.open(text, 'race.json')", recording)
    said = page.evaluate(
        "() => [...document.querySelectorAll('.pf [title]')].map(node => [node.textContent.trim(), node.title])"
    )
    terms = {
        "Plain": "plain decoding",
        "Speculative": "speculative decoding",
        "tok/s": "tokens per second",
        "first token": "TTFT",
        "per token": "TPOT",
        "slow steps": "95th percentile",
        "guess that was right": "accepted",
        "wrong, and what followed it": "rejected",
        "the model's own instead": "correction",
        "one more by the model itself": "bonus",
        "scores behind them": "logits",
        "Guesses": "drafter",
        "Length": "k",
        "guesses kept": "acceptance rate",
        "tokens a step": "mean acceptance length",
        "temperature" if temperature else "greedy": "seed decides every draw" if temperature else "likeliest token",
        "guesses:": "drafter",
    }
    missing = [word for word, term in terms.items() if not any(word in text and term in title for text, title in said)]
    assert missing == []
