"""Heads that differ from the given one by a single mistake that publishers make. A head that drafts badly is compared
with them: if one drafts much better, that mistake is the fault, and its name is the remedy."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..heads.formats import spec_of
from ..heads.head_spec import HeadSpec
from ..heads.names import HeadName
from ..heads.shapes import EMBEDDING, OUTPUT, info_of
from ..heads.vocabulary import TABLES, draft_ids
from ..layers.published import text_part
from ..loading.load_head import read_tensors
from ..loading.sources import find, weights_files
from ..loading.unpack import slices
from .files import Files
from .findings import Finding

MAX_PERMUTED = 4  # more hidden states have too many orders to try
THETA, USUAL_THETA = "rope_theta", 10_000.0  # the base of angles, and what transformers assumes for one that is omitted
ROPES = ("rope_parameters", "rope_scaling")


@dataclass(frozen=True)
class Variant:
    """drafter: how the head with the change is named.
    change: what to change in the given one, as an instruction.
    what: how it differs, after "if".
    is_reversed: it reads the same hidden states in reverse order.
    check: of a finding about it."""

    drafter: str
    change: str
    what: str = "that is changed"
    is_reversed: bool = False
    check: str = "settings"


Config = Mapping[str, Any]
Tensors = Mapping[str, Tensor]
Edit = tuple[Variant, Config, Tensors]  # without its name; its config.json; tensors to replace


@contextmanager
def variants(
    kind: str, name: HeadName, folder: Path, head: Files, target: Files, embedding: Tensor
) -> Iterator[tuple[list[Variant], list[Finding]]]:
    """The variants of the head in this folder, as long as the context lasts, and which could not be made. embedding:
    the target's, [vocab, hidden]."""
    num_layers = text_part(target.config)["num_hidden_layers"]
    spec = spec_of(head.config, head.name, kind, num_layers, name)
    candidates = [
        Variant(
            f"{kind}:{folder}#aux={_comma(ids)}",
            f"{_in_config(head.config, spec.hidden_layers, ids)}{why}; to try it first, put #aux={_comma(ids)} after "
            "the head's name",
            f"it reads hidden states {_comma(ids)} instead of {_comma(spec.hidden_layers)}",
            ids == spec.hidden_layers[::-1],
        )
        for ids, why in _tapped(spec.hidden_layers, num_layers)
    ]
    if kind == "dflash" and name.causal is None:
        candidates += [
            Variant(f"{kind}:{folder}#{word}", f"Its blocks are {word}: #{word}, or in config.json")
            for word in ("causal", "bidirectional")
            if any(is_causal != (word == "causal") for is_causal in spec.causal)
        ]
    tensors, untested = read_tensors(folder), list[Finding]()
    with TemporaryDirectory() as place:
        for variant, config, changes in (
            *_edited(head.config, tensors, target, spec),
            *_borrowed(head.config, tensors, target, spec, embedding, untested),
        ):
            made = Path(place) / str(len(candidates))
            _write(made, folder, config, {**tensors, **changes} if changes else {})
            options = f"#aux={_comma(name.aux)}" if name.aux else ""
            candidates.append(replace(variant, drafter=f"{kind}:{made}{options}"))
        yield candidates, untested


def _in_config(config: Config, ids: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """What to write for the hidden states `wanted` where the configuration has `ids`, in its own numbers."""
    for place in (config, *(part for part in config.values() if isinstance(part, Mapping))):
        for name, value in place.items():
            if name.endswith("layer_ids") and isinstance(value, list) and len(value) == len(ids):
                shift = {a - b for a, b in zip(value, ids, strict=True) if isinstance(a, int)}
                if len(shift) == 1:
                    new = [i + min(shift) for i in wanted]
                    return f"In the head's config.json set {name} to {new} instead of {value}"
    return f"Let the head read hidden states {_comma(wanted)} instead of {_comma(ids)}"


def _tapped(ids: tuple[int, ...], num_layers: int) -> Iterator[tuple[tuple[int, ...], str]]:
    """Other hidden states, and why they may be the right ones; the likelier mistakes first."""
    if (ordered := tuple(sorted(ids))) != ids:
        yield ordered, " (they are out of order)"
    for step, why in ((1, "its ids count layers, from 0"), (-1, "its ids count hidden states, from 0")):
        moved = tuple(i + step for i in ids)
        if all(0 <= i <= num_layers for i in moved):
            yield moved, f" ({why})"
    if 1 < len(ids) <= MAX_PERMUTED:
        others = (order for order in permutations(ids) if order not in (ids, ordered))
        yield from ((order, " (in another order)") for order in others)


def _edited(config: Config, tensors: Tensors, target: Files, spec: HeadSpec) -> Iterator[Edit]:
    """Other settings, in the configuration or in the tables."""
    layers = "transformer_layer_config" if isinstance(config.get("transformer_layer_config"), Mapping) else ""
    own, wanted = config[layers] if layers else config, text_part(target.config)
    for theta in sorted(_thetas(wanted) - _thetas(own)):
        where, now = f"{layers + ': ' if layers else ''}{THETA}", ", ".join(f"{theta:g}" for theta in _thetas(own))
        change = f"Set {where} to the target's, {theta:g}, in the head's config.json, instead of {now}"
        turned = _with_theta(own, theta)
        yield Variant("", change), {**config, layers: turned} if layers else turned, {}
    if spec.kind == "eagle3":
        flag = not spec.norm_before_residual
        change = f"Set norm_before_residual to {str(flag).lower()} in the head's config.json"
        yield Variant("", change), {**config, "norm_before_residual": flag}, {}
    if (ids := tensors.get("d2t")) is not None:
        rows = torch.arange(len(ids))
        num_words = wanted.get("vocab_size") or 0
        for change, offsets in (
            ("d2t holds the target's ids themselves: subtract each row's number", ids - rows),
            ("d2t is one off: subtract 1 from each entry", ids - 1),
            ("d2t is one off: add 1 to each entry", ids + 1),
        ):
            leads = rows + offsets
            if len(leads.unique()) == len(leads) and int(leads.min()) >= 0 and int(leads.max()) < num_words:
                yield Variant("", change), config, {"d2t": offsets}


def _borrowed(
    config: Config, tensors: Tensors, target: Files, spec: HeadSpec, embedding: Tensor, untested: list[Finding]
) -> Iterator[Edit]:
    """The target's rows where the head has others of its own: a table that was never loaded has the right shape too.
    Adds to `untested` what cannot be put in its place."""
    for name, check in ((EMBEDDING, "embedding"), (OUTPUT, "output layer")):
        if (own := tensors.get(name)) is None:
            continue
        rows = embedding if name == EMBEDDING else _output_rows(target, embedding)
        if rows is None or rows.shape[1] != own.shape[1]:
            why = "it is pickled" if rows is None else f"its are {rows.shape[1]} wide, the head's {own.shape[1]}"
            says = f"The target's rows were not tried in place of the head's {name}: {why}."
            untested.append(Finding("untested", check, says))
            continue
        if name == OUTPUT:
            d2t, t2d = (info_of(table, tensors[table]) if table in tensors else None for table in TABLES)
            ids = draft_ids(d2t, t2d, len(own), len(rows), spec.draft_vocab_size)
            rows = rows if ids is None else rows[ids]
        rows = rows[: len(own)]  # both may be padded
        if not torch.equal(own[: len(rows)].to(rows.dtype), rows):
            change = f"Export the head again with the {name} that it was trained with, or with the target's rows"
            what = f"the target's rows are in place of its {name}"
            changed = torch.cat([rows.to(own.dtype), own[len(rows) :]])
            yield Variant("", change, what, check=check), config, {name: changed}


def _output_rows(target: Files, embedding: Tensor) -> Tensor | None:
    """The target's output rows, out of its files: in memory they may be packed. None for pickles."""
    name = next((name for name in target.tensors if name.endswith(OUTPUT)), "")
    if not name:
        return embedding  # tied
    part = slices(weights_files(find(target.name).folder)).get(name)
    return None if part is None else part[...]


def _thetas(config: Config) -> set[float]:
    """The bases of a configuration's angles: one, or one for each kind of layer."""
    ropes = [config[name] for name in ROPES if isinstance(config.get(name), Mapping)]
    parts = [part for rope in ropes for part in (rope, *rope.values()) if isinstance(part, Mapping)]
    return {part[THETA] for part in parts if part.get(THETA)} or {config.get(THETA) or USUAL_THETA}


def _with_theta(config: Config, theta: float) -> dict[str, Any]:
    ropes: dict[str, Any] = {name: dict(config[name]) for name in ROPES if isinstance(config.get(name), Mapping)}
    for rope in ropes.values():
        by_kind: Any = {kind: {**part, THETA: theta} for kind, part in rope.items() if isinstance(part, Mapping)}
        rope.update(by_kind or {THETA: theta})
    return {**config, **ropes, THETA: theta}


def _write(place: Path, folder: Path, config: Config, tensors: Tensors) -> None:
    """A head with these tensors; without any, with links to the weights in `folder`."""
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if tensors:
        save_file({name: value.contiguous() for name, value in tensors.items()}, place / "model.safetensors")
        return
    for path in (*weights_files(folder), *folder.glob("*.index.json")):
        (place / path.name).symlink_to(path.resolve())


def _comma(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
