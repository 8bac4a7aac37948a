"""Which of the target's tokens a head's rows stand for, and padding of a head's tables to the target's length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UsageError


def may_be_padding(one: int, other: int) -> bool:
    """Whether two vocabulary sizes differ by no more than publishers' padding (267 rows of 151,936 in Qwen3)."""
    return abs(one - other) <= max(other // 64, 64)


def is_whole(stated: int | None, vocab_size: int) -> bool:
    """Whether a stated vocabulary, or none, is the target's."""
    return stated is None or may_be_padding(stated, vocab_size)


def embedding_of(own: Tensor, vocab_size: int) -> Tensor:
    """A head's own embedding [rows, hidden] with a row for every token of the target. Raises UsageError if too many are
    missing."""
    missing = vocab_size - own.shape[0]
    if not may_be_padding(own.shape[0], vocab_size):
        raise UsageError(
            f"the head embeds {own.shape[0]} words and the target has {vocab_size}: it is for another target"
        )
    return F.pad(own, (0, 0, 0, missing)) if missing > 0 else own


def draft_ids(
    d2t: Tensor | None, t2d: Tensor | None, num_rows: int, vocab_size: int, stated: int | None
) -> Tensor | None:
    """The target's id of each of a head's `num_rows` draft ids; None if the vocabularies are equal.

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
        ids = torch.arange(min(num_rows, vocab_size))
    elif d2t is not None:
        if d2t.shape != (num_rows,) or d2t.is_floating_point() or d2t.dtype == torch.bool:
            raise UsageError(
                f"the head's d2t has shape {list(d2t.shape)} of {d2t.dtype}, but it must have a whole number for "
                f"each of {num_rows} draft words"
            )
        ids = torch.arange(num_rows) + d2t.long()
        if int(d2t.count_nonzero()) == 0 and num_rows > vocab_size and may_be_padding(num_rows, vocab_size):
            ids = ids[:vocab_size]
    else:
        assert t2d is not None
        ids = t2d.flatten().nonzero().flatten()
        if len(ids) != num_rows:
            raise UsageError(f"the head's t2d marks {len(ids)} words, but it drafts among {num_rows}")
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise UsageError(
            f"the head's {'t2d' if d2t is None else 'd2t'} leads to token {wrong}, outside the target's vocabulary "
            f"of {vocab_size}"
        )
    if len(ids.unique()) != len(ids):
        raise UsageError("the head's d2t leads two draft words to one token")
    return None if torch.equal(ids, torch.arange(vocab_size)) else ids
