"""Which widths give bit-equal rows on this device, found by trying, and how far two lanes differ where they part.

A forward over 1 row and one over k + 1 rows may run different kernels, which sum in different orders. A race needs a
set of widths for which a row's logits, keys and values are a function of the committed tokens alone: not of the row's
place among the others, not of what the others contain (rejected drafts, padding), not of what lies behind the pointer,
and not of the width. No specification promises that, so it is probed, for this model, device, dtype, thread count and
cache length."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import transformers
from torch import Tensor

from .. import cache
from ..core.sampling.sampler import Sampler
from ..progress import Progress, silent
from .operators import SEED, bits, operator_classes, split, split_by_attention
from .widths import WidthClasses

if TYPE_CHECKING:
    from ..runner.prepared import Prepared
    from ..runner.target import StaticTarget

log = logging.getLogger(__name__)
PROBE_VERSION = 9
LIBRARIES = ("OMP_", "KMP_", "ONEDNN_", "MKL_", "CUBLAS_")  # whose variables in the environment may change bits
# Rows that each width commits in the middle of the cache (the least, and by trees), and at its beginning.
MIN_ROWS, EARLY_ROWS = 8, 4
NOISE_STEP = 1009  # how many random numbers later the context of each buffer begins than that of the one before


@torch.inference_mode()
def probe(
    target: StaticTarget, progress: Progress = silent, operators: Callable[[], WidthClasses] | None = None
) -> WidthClasses:
    """Decode one random sequence at every width: by random accept patterns at the beginning of the cache, by whole
    steps in its middle, with rejected rows and the cache behind the pointer filled with garbage; and again by random
    trees, if the target takes them. Compare every committed row of logits, key and value, and the final state of linear
    layers, bit by bit. Each width commits at least as many rows as the next wider one has places.

    A step of width 1 has no other rows, so what equals it depends on neither place nor neighbours. Widths that equal no
    such row are compared with themselves, the patterns exchanged. Widths are one class only if the model's operators
    agree too (`operators.py`). Widths that fail are listed as unstable.

    target: nothing else may use it meanwhile.
    operators: returns the classes of operators that do not depend on the length; None: they are probed now.
    """
    prepared, length, widths = target.prepared, target.cache_length, target.widths
    rng = random.Random(SEED)
    num_rows = {w: max(MIN_ROWS, wider) for w, wider in pairwise((*widths, max(widths)))}
    most_rows = max(num_rows.values())
    middle = min(length - most_rows - max(widths), max(MIN_ROWS, length // 2))
    tokens = [rng.randrange(prepared.vocab_size) for _ in range(most_rows)]
    buffers = [side for layer in target.kv for side in layer]
    noise = _noise(buffers)

    def commit(width: int, start: int, num: int, pattern: Callable[[], int], trees: bool = False) -> Tensor:
        """Commit `num` tokens, `pattern()` of them a step, over the same context; all bits of their logits, keys and
        values, row by row. trees: they are paths through random trees."""
        for i, buffer in enumerate(buffers):
            buffer.copy_(noise[i * NOISE_STEP :][: buffer.numel()].view(buffer.shape))
        target.jump(start)
        rows: list[Tensor] = []
        while len(rows) < num:
            num_kept = min(pattern(), num - len(rows))
            path, parents = _tree(rng, width, num_kept) if trees else ((), ())
            ids = [rng.randrange(prepared.vocab_size) for _ in range(width)]
            for row, token in zip(path or range(num_kept), tokens[len(rows) :], strict=False):
                ids[row] = token
            logits, _ = target.extend(ids, width if path else num_kept, width=width, parents=parents)
            rows.extend(logits[list(path)] if path else logits.clone())
            if path:
                target.keep(path)
            target.rollback(start + len(rows))
        committed = ([row, *(side[:, :, at : at + 1] for side in buffers)] for at, row in enumerate(rows, start))
        return torch.cat([bits(tensor).flatten() for row in committed for tensor in row])

    def run(width: int, exchanged: bool = False) -> Tensor:
        patterns = [partial(rng.randint, 1, width), partial(int, width)]
        at_beginning, in_middle = reversed(patterns) if exchanged else patterns
        early = commit(width, 1, EARLY_ROWS, at_beginning)
        states = [bits(state).flatten() for state in target.states()]
        trees = []
        if target.takes_trees:
            trees = [commit(width, middle, MIN_ROWS, partial(rng.randint, 1, max(1, width - 1)), trees=True)]
        last = commit(width, middle, num_rows[width], in_middle)
        return torch.cat([early, *states, *trees, last])

    reference: dict[int, Tensor] = {}
    for done, width in enumerate(widths):
        progress("one-time check for this length: do both lanes round alike?", done / len(widths))
        reference[width] = run(width)

    by_operators = operators() if operators is not None else operator_classes(prepared, widths, progress)
    groups = split(split_by_attention(prepared, length, by_operators.classes), reference.__getitem__)
    apart = {w for group in groups if 1 not in group or len(group) == 1 for w in group}
    unstable = {w for w in sorted(apart) if not torch.equal(reference[w], run(w, exchanged=True))}
    classes = (tuple(w for w in group if w not in unstable) for group in groups)
    return WidthClasses(tuple(sorted(filter(None, classes))), tuple(sorted({*by_operators.unstable, *unstable})))


def _tree(rng: random.Random, num_rows: int, num_kept: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A random path through a random tree of that many rows, and the tree's parents: see `Draft`."""
    path = (0, *sorted(rng.sample(range(1, num_rows), num_kept - 1)))
    before = dict(zip(path[1:], path, strict=False))
    return path, tuple(before.get(row, rng.randrange(row)) for row in range(1, num_rows))


def _noise(buffers: Sequence[Tensor]) -> Tensor:
    """Random numbers from which every buffer's context is cut: separate ones cost seconds and a cache's memory."""
    size = max(buffer.numel() for buffer in buffers) + NOISE_STEP * len(buffers)
    return (torch.randn(size, generator=torch.Generator().manual_seed(SEED)) * 0.5).to(buffers[0].device)


def fingerprint(prepared: Prepared, digest: str, length: int | None, widths: Sequence[int]) -> dict:
    """Everything that the classes may depend on. length None: only what does not depend on the length."""
    return {
        "probe": PROBE_VERSION,
        "digest": digest,
        "dtype": str(prepared.dtype),
        **prepared.kernels.identity(prepared.model),
        "wait": {key: value for key, value in os.environ.items() if key.startswith(LIBRARIES)},
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "length": length,
        "widths": list(widths),
    }


def probe_cached(target: StaticTarget, digest: str, progress: Progress = silent) -> WidthClasses:
    """`probe`, cached under its fingerprint, with its operators cached separately for other lengths and widths."""
    prepared, widths = target.prepared, target.widths
    key = fingerprint(prepared, digest, target.cache_length, widths)
    classes = _recalled(key)
    if classes is None or _judged(classes) != list(widths):
        classes = probe(target, progress, partial(_operators, prepared, digest, widths, progress))
        _remember(key, classes)
    return classes


def _operators(prepared: Prepared, digest: str, widths: Sequence[int], progress: Progress = silent) -> WidthClasses:
    """`operator_classes` of these widths. One width stands for each known class: only new widths are compared."""
    key = fingerprint(prepared, digest, None, ())
    known = _recalled(key) or WidthClasses((), ())
    if unknown := set(widths) - set(_judged(known)):
        new = operator_classes(prepared, sorted({*unknown, *(members[0] for members in known.classes)}), progress)
        known = _joined(known, new)
        _remember(key, known)
    classes = (tuple(w for w in members if w in widths) for members in known.classes)
    return WidthClasses(tuple(filter(None, classes)), tuple(w for w in known.unstable if w in widths))


def _joined(known: WidthClasses, new: WidthClasses) -> WidthClasses:
    """The new classes, with every known class in the place of its first width."""
    behind = {members[0]: members for members in known.classes}
    classes = (sorted(w for first in members for w in behind.get(first, (first,))) for members in new.classes)
    unstable = (w for first in new.unstable for w in behind.get(first, (first,)))
    return WidthClasses(tuple(sorted(map(tuple, classes))), tuple(sorted({*known.unstable, *unstable})))


def _judged(classes: WidthClasses) -> list[int]:
    return sorted([*classes.unstable, *(width for members in classes.classes for width in members)])


def _name(key: dict) -> str:
    return f"widths-{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]}.json"


def _recalled(key: dict) -> WidthClasses | None:
    """The cached classes; None if missing or damaged."""
    if (known := cache.read_json(_name(key))) is None:
        return None
    try:
        classes = WidthClasses(tuple(map(tuple, known["classes"])), tuple(known["unstable"]))
        judged = _judged(classes)
        whole = all(type(width) is int for width in judged) and len(set(judged)) == len(judged) and all(classes.classes)
        if known["fingerprint"] == key and whole:
            return classes
    except (KeyError, TypeError, ValueError):
        pass
    log.warning("ignoring a damaged probe result in the cache: %s", _name(key))
    return None


def _remember(key: dict, classes: WidthClasses) -> None:
    cache.write_json(_name(key), {"fingerprint": key, **asdict(classes)})


@torch.inference_mode()
def explain(
    sampler: Sampler, row_a: Tensor, row_b: Tensor, position: int, tokens: tuple[int, int]
) -> tuple[float, float, float]:
    """How close the choice was where two lanes parted: lane a's row [vocab] chose tokens[0], lane b's tokens[1].

    Returns (margin, rounding, share). margin: the two candidates' difference of scores, the larger of the two lanes';
    if top-k or top-p removed a candidate in one lane, its distance from the smallest score kept there. rounding: root
    mean square difference of the two rows, in units of the scores. share: that difference over the spread of the
    logits."""
    scale = sampler.params.temperature or 1.0
    is_possible = row_a.isfinite() & row_b.isfinite()  # a model may exclude tokens by -inf
    a, b = (row[is_possible].float() for row in (row_a, row_b))
    difference = (a - b).square().mean().sqrt()
    share = float(difference / a.std())
    margins = []
    for row, chosen, rival in ((row_a, *tokens), (row_b, tokens[1], tokens[0])):
        scores = sampler.scores(row, position)
        if torch.isfinite(scores[rival]):
            margins.append(float(scores[chosen] - scores[rival]))
        else:
            kept = (row.float() / scale)[torch.isfinite(scores)].min()
            margins.append(float(kept - row[rival].float() / scale))
    return max(margins), float(difference) / scale, share
