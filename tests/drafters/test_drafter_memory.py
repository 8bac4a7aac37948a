"""What a drafter says of its memory: no more and no less than what making it allocates beside its target."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import drafters
from engine.core.interfaces import Memory
from engine.drafters import weightless
from engine.loading.loading import LoadedModel, load
from tests.helpers.heads import FORMS, formats_target, random_head, save
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import ARGUMENTS, DRAFT, context, text_of

DTYPES = ("float32", "bfloat16")


@pytest.fixture(autouse=True, scope="module")
def few_objects() -> Iterator[None]:
    """What was there before is of no interest, and looking through all of it takes seconds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def live(wanted: Any = lambda tensor: True) -> dict[int, int]:
    """Every storage that a tensor of this process holds now -> its bytes."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)]
    return dict(
        (id(tensor), torch.ops.mkldnn._nbytes(tensor))
        if tensor.is_mkldnn
        else (tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        for tensor in tensors
        if wanted(tensor) and not tensor.is_meta
    )


def made(text: str, loaded: LoadedModel, num_new: int = 8, length: int = 256) -> Any:
    """A drafter of a race of so many new tokens, whose caches have that length."""
    assert loaded.prepared
    here = replace(context(loaded, 5, num_new=num_new, reference=lambda: (1, 2, 3)), length=length)
    return drafters.make(text, here)


def forget_work(loaded: LoadedModel, name: str) -> None:
    """Let go of what a compiled decoder keeps to work with, once and for every race: angles, and room."""
    decoder = loaded.companion(name).model.get_decoder()
    if hasattr(decoder, "tables_for"):
        decoder._tables = None
        vars(decoder._room).clear()


def allocated(text: str, loaded: LoadedModel) -> tuple[Any, int]:
    """(a drafter, bytes that stay when it is made for the first time, and do not come again with a second one)."""
    assert loaded.prepared
    before = sum(live().values())
    first = made(text, loaded)
    if DRAFT.name in text:
        forget_work(loaded, str(DRAFT))
    between = sum(live().values())
    second = made(text, loaded)
    if DRAFT.name in text:
        forget_work(loaded, str(DRAFT))
    again = sum(live().values()) - between
    assert second.memory == first.memory
    return first, between - before - again


def cache_growth(text: str, loaded: LoadedModel) -> float:
    """Bytes of keys and values by which a drafter for more tokens is larger, for each token more."""
    sizes = []
    for num_new, length in ((8, 256), (520, 768)):
        before = live(lambda tensor: tensor.dim() == 4)
        kept = made(text, loaded, num_new, length)
        new = {where: size for where, size in live(lambda tensor: tensor.dim() == 4).items() if where not in before}
        sizes.append(sum(new.values()))
        del kept
    return (sizes[1] - sizes[0]) / 512


HEADS = {
    "a head that borrows nothing": ("dflash", "another width"),
    "a head with a copy of the target's embedding": ("eagle3", "its own embedding"),
}


def case_of(name: str, dtype: str, folder: Path) -> tuple[str, LoadedModel]:
    """A drafter in its text form, and its target."""
    if name in ARGUMENTS:
        return text_of(name), load(str(TRAINED), dtype, "cpu")
    kind, form = HEADS[name]
    loaded, head = formats_target(dtype), random_head(kind, **FORMS[kind][form])
    if kind == "eagle3":
        head.tensors["embed_tokens.weight"] = loaded.model.get_input_embeddings().weight.detach().float()
    return f"{kind}:{save(folder / 'head', *head)}", loaded


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ARGUMENTS, *HEADS])
def test_every_kind_says_what_it_allocates(name: str, dtype: str, tmp_path: Path) -> None:
    """Decide would tell an engineer a drafter's file size, or count what is the target's own, and call it memory."""
    text, loaded = case_of(name, dtype, tmp_path)
    drafter, num_bytes = allocated(text, loaded)
    assert drafter.memory.weight_bytes == num_bytes
    assert drafter.memory.token_bytes == cache_growth(text, loaded)
    assert (drafter.memory == Memory()) == (name in (*weightless(), "synthetic"))


def test_the_target_itself_as_a_draft_model_takes_a_cache_alone() -> None:
    """Weights that are there already would be counted as the drafter's."""
    loaded = load(str(TRAINED), "float32", "cpu")
    drafter = made(f"draft_model:{loaded.info.name}", loaded)
    assert drafter.memory.weight_bytes == 0 < drafter.memory.token_bytes
