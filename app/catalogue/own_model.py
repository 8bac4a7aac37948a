"""A target and a drafter that the page's owner names: whether they can run here, from each config.json alone."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.core.errors import PhotofinishError, UsageError
from engine.core.spec import AUTO, RANDOM
from engine.drafters import check as check_drafter
from engine.layers.published import num_parameters, quantised, refusal, stored_bits, text_part, unpacking
from engine.loading.random_targets import read_published
from engine.loading.sources import DEFAULT_TARGET, cached_config, config_of, is_here

from .catalogue import Pair, load_pairs, of_template
from .fits import CACHES, DAMAGED, GRAPHS, parts_of, repository, words_of
from .hub import in_parallel
from .machine import GIB

log = logging.getLogger(__name__)
OWN = "your-model"
SILENT_S = 4.0
BYTES = {"float32": 4}  # per weight; 2 in all other dtypes
GB = 1e9


@dataclass(frozen=True)
class Room:
    """What a model may take of this page's device: the bytes that are free, or taken by the model that it replaces.

    dtype: of the weights. graphs: whether the device captures graphs, which take memory too."""

    free: int
    dtype: str
    graphs: bool


def check_own(target: str, drafter: str, room: Room) -> tuple[Pair, list[str]]:
    """The pair, and what it is and takes, in paragraphs. Only a repository's config.json is fetched. Raises UsageError
    with the reason if it cannot run here."""
    try:
        return _checked(target, drafter, room)
    except PhotofinishError:
        raise
    except Exception as error:  # a configuration comes from anywhere and can be wrong in any way
        log.info("judging %s and %s by their config.json failed", target, drafter, exc_info=True)
        raise UsageError(f"{target}, or its drafter, {DAMAGED}") from error


def _checked(target: str, drafter: str, room: Room) -> tuple[Pair, list[str]]:
    check_drafter(drafter)
    head, own = repository(drafter), drafter.rpartition("+")[2]
    configs = _configs([name for name in (target, head) if name])
    config, draft, size = configs[target], configs.get(head, {}), BYTES.get(room.dtype, 2)
    if why := [fault for fault in (refusal(config), quantised(config)) if fault and config]:
        raise UsageError(f"{target} cannot run here: it {', and it '.join(why)}")
    if own in ("eagle3", "dflash") and target != DEFAULT_TARGET:
        raise UsageError(f"only {DEFAULT_TARGET} comes with a head; name one, as in {own}:owner/name or {own}:./folder")
    if own.startswith(("eagle3:", "dflash:")) and config:
        _check_head(head, own, draft, config)
    parts = {what: num for what, num in parts_of(config, drafter, draft, size).items() if what != GRAPHS or room.graphs}
    needed, free = sum(parts.values()), f"{room.free / GIB:.1f} GiB is free"
    takes = f"takes {needed / GIB:.1f} GiB of memory ({words_of(parts)})"
    if needed - parts[CACHES] > room.free:
        raise UsageError(f"{target} with {drafter} {takes}, and {free}")
    chat, thinking = of_template(load_pairs(), target)
    title = f"{target} + {drafter}"
    pair = Pair(OWN, title, target, drafter, AUTO, "Named by you.", chat, named=True, thinking=thinking)
    sentences = [_described(target, config), *([_described(head, draft)] if head else [])]
    if says := unpacking(config):
        sentences.append(f"{target} has {says}.")
    if config:
        sentences.append(f"It {takes}; {free}{', so only shorter races fit' if needed > room.free else ''}.")
    return pair, sentences


def _check_head(head: str, drafter: str, config: Mapping[str, Any], of_target: Mapping[str, Any]) -> None:
    """Raise UsageError with the reason if the engine does not read this head."""
    from engine.heads.formats import spec_of
    from engine.heads.names import parse_name

    kind, _, argument = drafter.partition(":")
    given = parse_name(kind, argument)
    try:
        spec_of(config, head, kind, text_part(of_target)["num_hidden_layers"], given)
    except PhotofinishError as error:
        raise UsageError(f"this engine does not read the head {head}: {error}") from error


def _configs(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Each config.json, from the hub's cache if the hub is silent, whose own client would wait for minutes."""

    def asked(name: str) -> Mapping[str, Any] | PhotofinishError:
        try:
            return {} if name == DEFAULT_TARGET else config_of(name)
        except PhotofinishError as error:
            return error

    known = {name: cached_config(name) for name in names}
    here = {name: asked(name) for name in names if not known[name] and is_here(name)}
    elsewhere = {name: partial(asked, name) for name in names if name not in here}
    configs: dict[str, Any] = here | in_parallel(elsewhere, SILENT_S)
    for name, cached in known.items():
        if isinstance(answer := configs.get(name), PhotofinishError):
            raise answer
        if answer is None:
            if cached is None:
                raise UsageError(f"the hub has not answered within {SILENT_S:g} s; a folder here needs no network")
            configs[name] = read_published(cached)
    return configs


def _described(name: str, config: Mapping[str, Any]) -> str:
    """What it is, and what would be downloaded."""
    if not config:
        return f"{name}: the model that comes with this page."
    kind = (config.get("architectures") or [text_part(config).get("model_type")])[0]
    stored = config.get("dtype") or config.get("torch_dtype") or text_part(config).get("dtype")
    num = num_parameters({**config, **(config.get("transformer_layer_config") or {})})
    size = f"{num / GB:.2f} billion" if num >= GB else f"{num / 1e6:.1f} million"
    size = f"{size} parameters" if num else "of unknown size"
    if name.startswith(RANDOM):
        return f"{name}: {kind}, {size}, drawn at random."
    if is_here(name):
        return f"{name}: {kind}, {size}, on this machine: nothing to download."
    bits = stored_bits(config)  # not of every weight
    num_bytes = num * (bits / 8 or BYTES.get(str(stored), 2))
    return f"{name}: {kind}, {size}. " + (
        f"{'At least' if bits else 'About'} {num_bytes / GB:.1f} GB to download."
        if num
        else "The download's size is unknown."
    )
