"""Which of the target's tokens a head's rows stand for. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.errors import UsageError

TABLES = ("d2t", "t2d")  # the tensors that say so


@dataclass(frozen=True)
class TensorInfo:
    """A tensor without its values.

    dtype: as torch names it, such as bfloat16.
    values: those of a table of whole numbers or flags; None if they are not known."""

    shape: tuple[int, ...]
    dtype: str
    values: Sequence[int] | None = None


def may_be_padding(one: int, another: int) -> bool:
    """Whether two vocabulary sizes differ by no more than publishers' padding (267 rows of 151,936 in Qwen3)."""
    return abs(one - another) <= max(another // 64, 64)


def is_whole(stated: int | None, vocab_size: int) -> bool:
    """Whether a stated vocabulary, or none, is the target's."""
    return stated is None or may_be_padding(stated, vocab_size)


def by_offsets(d2t: Sequence[int]) -> list[int]:
    """The target's id of each draft id."""
    return [row + offset for row, offset in enumerate(d2t)]


def marked(t2d: Sequence[int]) -> list[int]:
    """The target's ids that have a row, in order."""
    return [token_id for token_id, has_row in enumerate(t2d) if has_row]


def draft_ids(
    d2t: TensorInfo | None, t2d: TensorInfo | None, num_rows: int, vocab_size: int, stated: int | None
) -> list[int] | None:
    """The target's id of each of a head's `num_rows` draft ids; None if the vocabularies are equal, or the values of
    the tables are not known.

    d2t: [num_rows] offsets, id = row + d2t[row].
    t2d: [vocab], whether a token has a row, in order; used without d2t.
    stated: the draft vocabulary of the configuration.

    Raises UsageError naming what does not fit."""
    if stated is not None and stated != num_rows:
        raise UsageError(
            f"the head's config.json states a draft vocabulary of {stated} words, and its lm_head has {num_rows}"
        )
    if d2t is None and t2d is None:
        if not may_be_padding(num_rows, vocab_size):
            raise UsageError(
                f"the head drafts among {num_rows} words and the target has {vocab_size}, with no d2t table to tell "
                "which"
            )
        ids = list(range(min(num_rows, vocab_size)))
    elif d2t is not None:
        if d2t.shape != (num_rows,) or "float" in d2t.dtype or d2t.dtype == "bool":
            raise UsageError(
                f"the head's d2t has shape {list(d2t.shape)} of {d2t.dtype}, but it must have a whole number for "
                f"each of {num_rows} draft words"
            )
        if d2t.values is None:
            return None
        ids = by_offsets(d2t.values)
        if not any(d2t.values) and num_rows > vocab_size and may_be_padding(num_rows, vocab_size):
            ids = ids[:vocab_size]
    else:
        assert t2d is not None
        if t2d.values is None:
            return None
        ids = marked(t2d.values)
        if len(ids) != num_rows:
            raise UsageError(f"the head's t2d marks {len(ids)} words, but it drafts among {num_rows}")
    if min(ids) < 0 or max(ids) >= vocab_size:
        wrong = min(ids) if min(ids) < 0 else max(ids)
        raise UsageError(
            f"the head's {'t2d' if d2t is None else 'd2t'} leads to token {wrong}, outside the target's vocabulary "
            f"of {vocab_size}"
        )
    if len(set(ids)) != len(ids):
        raise UsageError("the head's d2t leads two draft words to one token")
    return None if ids == list(range(vocab_size)) else ids
