"""How much of a text was copied from its prompt, which is easy to guess. Standard library only."""

from __future__ import annotations

SHORTEST = 24  # characters of the shortest copy that counts: a handful of words
MOSTLY = 0.5
LOOKED_AT = 40_000  # characters of a text; it may be a stranger's


def copied_share(prompt: str, text: str) -> float:
    """The share of the text's characters that lie in verbatim copies of at least SHORTEST characters of the prompt."""
    text = text[:LOOKED_AT]
    starts: dict[str, list[int]] = {}
    for i in range(len(text) - SHORTEST + 1):
        starts.setdefault(text[i : i + SHORTEST], []).append(i)
    copied = bytearray(len(text))
    for i in range(len(prompt) - SHORTEST + 1):
        for at in starts.pop(prompt[i : i + SHORTEST], ()):
            copied[at : at + SHORTEST] = b"\1" * SHORTEST
    return sum(copied) / len(text) if text else 0.0


def copies_sentence(prompt: str, text: str) -> str | None:
    """A warning to show with the ratio of a text that mostly copies its prompt; None for any other."""
    share = copied_share(prompt, text)
    if share < MOSTLY:
        return None
    return f"{100 * share:.0f} % of this text copies the prompt: expect this ratio only where yours do the same."
