"""The rows of a step: 0 is that of the last committed token, i + 1 that of draft token i. A tree has `parents`: the row
that each token follows, an earlier one. The tokens that follow one row differ. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence


def is_tree(parents: Sequence[int], token_ids: Sequence[int]) -> bool:
    """Whether these are the parents of a tree of these tokens."""
    return (
        len(parents) == len(token_ids)
        and all(type(row) is int and 0 <= row <= i for i, row in enumerate(parents))
        and len(set(zip(parents, token_ids, strict=True))) == len(token_ids)
    )


def row_after(parents: Sequence[int], token_ids: Sequence[int], row: int, token: int) -> int | None:
    """The row of the token that follows `row` in a tree, if it is this one; else None."""
    both = enumerate(zip(parents, token_ids, strict=True), 1)
    return next((i for i, pair in both if pair == (row, token)), None)


def paths(parents: Sequence[int]) -> list[tuple[int, ...]]:
    """For each row, the draft tokens that lead to it, by number, its own last; () for row 0."""
    found: list[tuple[int, ...]] = [()]
    for i, row in enumerate(parents):
        found.append((*found[row], i))
    return found
