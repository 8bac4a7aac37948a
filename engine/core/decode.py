"""The decoding loop. There is no other: the baseline, and plain decoding, are this loop without proposals.

    INVARIANT   Between steps the target's cache holds every committed token except the last.

So prefill is `extend(prompt[:-1])`, every output token comes out of a timed step, and a step is always the same four
moves: propose, extend by the last token and the draft, accept, roll back to all but the newest token. A target may do
the middle two in one call.

A step with k = 3, whose second guess is wrong; c is the last committed token, the cache holds n tokens:

    propose    x y z
    extend     c x y z        rows 0 to 3 of logits, the cache holds n + 4
    accept     row 0 chooses x, row 1 chooses t: x is kept, t is the target's own
    roll back  committed ... c x t, the cache holds n + 2: all but t
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from .errors import DrafterError, PhotofinishError
from .events import Event, Failed, Finished, Started, Step
from .interfaces import Acceptance, AcceptRule, Draft, Drafter, Ending, Target, Verify, WholeStepTarget
from .spec import is_tree

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


def decode(
    target: Target,
    drafter: Drafter,
    accept: AcceptRule,
    prompt_ids: Sequence[int],
    ending: Ending,
    max_new_tokens: int,
    k: int,
    *,
    audit: bool = False,
    look: Callable[[Step, Tensor], None] | None = None,
    on_error: Callable[[Exception], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Event]:
    """Yield Started, a Step per verification, then Finished; or Failed after whatever a drafter raises, and after a
    PhotofinishError, RuntimeError or MemoryError from elsewhere (tokens of earlier steps stand). Others propagate.

    target: with an empty cache.
    prompt_ids: at least one token.
    ending: decides where the completion ends, by `max_new_tokens` too; used for this lane only.
    max_new_tokens: the ending's limit, which shortens drafts here.
    k: the most tokens that a step drafts; it commits 1 to k + 1.
    audit: whether steps carry checksums of the rows of logits that decided their tokens.
    look: called with each step and its logits [num_drafted + 1, vocab], valid until it returns. It waits for whatever
        it starts on the device, which would else be part of the next step's time.
    on_error: called with the error before Failed is yielded; may raise instead.
    clock: seconds.

    `draft_s` is the time of the proposal and its checks, `verify_s` that of forward, sampling, acceptance and rollback.
    The clock starts when the loop is resumed and stops after the rollback; stop strings, checksums and `look` follow
    untimed, before the event is yielded. Closing the generator ends the lane; a running step is finished first."""
    committed = list(prompt_ids)
    num_tokens, decode_s = 0, 0.0
    try:
        verify = _verifier(target, accept)
        started = clock()
        _, hidden = target.extend(committed[:-1], 0)
        _guard(drafter.prefill, tuple(committed), hidden)
        target.synchronize()
        yield Started(len(committed), clock() - started)

        hidden = None
        for index in count():
            started = clock()
            draft = _propose(drafter, committed, hidden, min(k, max_new_tokens - num_tokens - 1), target.vocab_size)
            target.synchronize()
            drafted = clock()

            acceptance, logits, hidden = verify(committed[-1], draft, num_tokens)
            committed += acceptance.token_ids
            if acceptance.rows:
                target.keep(acceptance.rows)
            target.rollback(len(committed) - 1)
            if hidden is not None:
                hidden = _decided(hidden, acceptance)
            target.synchronize()
            verified = clock()

            num_counted, reason = ending.cut(acceptance.token_ids)
            checksums = target.checksums(_decided(logits, acceptance)[:num_counted]) if audit else ()
            step = Step(
                index=index,
                position=num_tokens,
                drafted=draft.token_ids,
                num_accepted=min(acceptance.num_accepted, num_counted),
                token_ids=acceptance.token_ids[:num_counted],
                draft_s=drafted - started,
                verify_s=verified - drafted,
                width=target.width_for(len(draft) + 1),
                checksums=checksums,
                copied=draft.copied,
                parents=draft.parents,
                sources=draft.sources,
                chances=draft.chances,
            )
            if look:
                look(step, logits)
            num_tokens += num_counted
            decode_s += step.seconds
            yield step
            if reason is not None:
                yield Finished(reason, num_tokens, decode_s)
                return
    except (PhotofinishError, RuntimeError, MemoryError) as error:
        log.warning("a lane failed", exc_info=True)
        if on_error:
            on_error(error)
        yield Failed(str(error) if isinstance(error, PhotofinishError) else f"the model failed: {error}")


def _verifier(target: Target, accept: AcceptRule) -> Verify:
    """The target's own whole step where it has one for this rule; else its forward, then the rule on the host."""
    whole = target.verifier(accept) if isinstance(target, WholeStepTarget) else None
    return whole or partial(_by_rows, target, accept)


def _by_rows(
    target: Target, accept: AcceptRule, token: int, draft: Draft, position: int
) -> tuple[Acceptance, Tensor, Tensor | None]:
    logits, hidden = target.extend([token, *draft.token_ids], len(draft) + 1, parents=draft.parents)
    return accept(draft, logits, position), logits, hidden


def _decided(rows: Tensor, acceptance: Acceptance) -> Tensor:
    """The rows of a step that decided the committed tokens, in order."""
    return rows[list(acceptance.rows)] if acceptance.rows else rows[: len(acceptance.token_ids)]


def _propose(drafter: Drafter, committed: list[int], hidden: Tensor | None, k: int, vocab_size: int) -> Draft:
    """A draft that is safe to verify. Raises DrafterError if the drafter raised or broke its contract."""
    draft = _guard(drafter.propose, tuple(committed), hidden, k)  # a tuple: a drafter cannot change what was committed
    if not isinstance(draft, Draft) or not (isinstance(draft.token_ids, tuple) and isinstance(draft.parents, tuple)):
        raise DrafterError(
            f"the drafter proposed {type(draft).__name__} {str(draft)[:60]!r}, which is no Draft of tuples of token "
            "ids and parents"
        )
    ids = draft.token_ids
    if len(ids) > k:
        raise DrafterError(f"the drafter proposed {len(ids)} tokens where at most {k} were asked for")
    for token in ids:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise DrafterError(f"the drafter proposed {token!r}, which is no token id from 0 to {vocab_size - 1}")
    if draft.parents and not is_tree(draft.parents, ids):
        raise DrafterError(f"the drafter proposed a tree with parents {str(draft.parents)[:60]}, which is none")
    return draft


def _guard(call: Callable, *arguments):
    """Call a drafter; whatever it raises becomes the cause of a DrafterError."""
    try:
        return call(*arguments)
    except Exception as error:
        raise DrafterError(f"the drafter failed: {type(error).__name__}: {error}") from error
