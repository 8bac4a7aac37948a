"""Heads that differ from the given one by a single mistake that publishers make. A head that drafts badly is compared
with them: if one drafts much better, that mistake is the fault, and its name is the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ..heads.formats import spec_of
from ..heads.names import HeadName
from ..layers.published import text_part
from ..loading.sources import weights_files
from .files import Files

MAX_PERMUTED = 4  # more hidden states have too many orders to try
THETA = "rope_theta"


@dataclass(frozen=True)
class Variant:
    """drafter: how the head with the change is named.
    change: what to change in the given one, as an instruction.
    what: how it differs, after "if".
    is_reversed: it reads the same hidden states in reverse order."""

    drafter: str
    change: str
    what: str = "that is changed"
    is_reversed: bool = False


@contextmanager
def variants(kind: str, name: HeadName, folder: Path, head: Files, target: Files) -> Iterator[list[Variant]]:
    """The variants of the head in this folder, as long as the context lasts. They share its weights."""
    num_layers = text_part(target.config)["num_hidden_layers"]
    spec = spec_of(head.config, head.name, kind, num_layers, name.aux, name.causal)
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
    with TemporaryDirectory() as place:
        can_copy = all(path.suffix == ".safetensors" for path in weights_files(folder))
        for change, config, tables in _edited(head, target, spec):
            if tables and not can_copy:
                continue
            made = _write(Path(place) / str(len(candidates)), folder, config, tables)
            options = f"#aux={_comma(name.aux)}" if name.aux else ""
            candidates.append(Variant(f"{kind}:{made}{options}", change))
        yield candidates


def _in_config(config: Mapping[str, Any], ids: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """What to write for the hidden states `wanted` where the configuration has `ids`, in its own numbers."""
    places = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    for place in places:
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
        yield from (
            (permutation, " (in another order)")
            for permutation in permutations(ids)
            if permutation not in (ids, ordered)
        )


def _edited(head: Files, target: Files, spec: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """Changes of the configuration or of the tables: the instruction, config.json, tables to replace."""
    config = dict(head.config)
    layers = "transformer_layer_config" if isinstance(config.get("transformer_layer_config"), Mapping) else ""
    own: dict[str, Any] = dict(config[layers] if layers else config)
    theta, wanted = _theta(own), _theta(text_part(target.config))
    if wanted and theta and theta != wanted:
        turned = {key: value for key, value in own.items() if key not in ("rope_parameters", "rope_scaling")}
        turned[THETA] = wanted
        where = f"{layers + ': ' if layers else ''}{THETA}"
        yield (f"Set {where} to the target's, {wanted:g}, in the head's config.json, instead of {theta:g}",
               {**config, layers: turned} if layers else turned, {})  # fmt: skip
    if spec.kind == "eagle3":
        flag = not spec.norm_before_residual
        yield f"Set norm_before_residual to {str(flag).lower()} in the head's config.json", {
            **config, "norm_before_residual": flag,
        }, {}  # fmt: skip
    d2t = head.tensors.get("d2t")
    if d2t is not None and d2t.values is not None:
        ids = torch.tensor(d2t.values)
        rows = torch.arange(len(ids))
        num_words = text_part(target.config).get("vocab_size") or 0
        for change, offsets in (
            ("d2t holds the target's ids themselves: subtract each row's number", ids - rows),
            ("d2t is one off: subtract 1 from each entry", ids - 1),
            ("d2t is one off: add 1 to each entry", ids + 1),
        ):
            leads = rows + offsets
            if len(leads.unique()) == len(leads) and int(leads.min()) >= 0 and int(leads.max()) < num_words:
                yield change, config, {"d2t": offsets}


def _theta(config: Mapping[str, Any]) -> float | None:
    """The one base of a configuration's angles; None without one, or if they differ by layer."""
    parameters = config.get("rope_parameters")
    theta = parameters.get(THETA) if isinstance(parameters, Mapping) else None
    return theta or config.get(THETA)


def _write(place: Path, folder: Path, config: Mapping[str, Any], tables: Mapping[str, Tensor]) -> Path:
    """A head whose weights are links to those in `folder`."""
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for path in weights_files(folder):
        if tables:
            _copy(path, place, tables)
        else:
            (place / path.name).symlink_to(path.resolve())
    for path in folder.glob("*.index.json"):
        (place / path.name).symlink_to(path.resolve())
    return place


def _copy(path: Path, place: Path, tables: Mapping[str, Tensor]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    save_file({**tensors, **{key: value for key, value in tables.items() if key in tensors}}, place / path.name)


def _comma(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
