"""For gpu_session.py: the tiles of a model's linears, default or tuned. All that the session asks of
`engine/gpu/tuning.py` is asked here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from unittest import mock


def linears_of(model: Any) -> list[Any]:
    """Its linears that run as kernels."""
    from engine.gpu.choice import reason_against

    if reason_against(next(model.parameters()).device) is not None:
        return []
    from engine.gpu.linear import GpuLinear

    return [module for module in model.modules() if isinstance(module, GpuLinear)]


@contextmanager
def with_default_tiles(loaded: Any) -> Iterator[None]:
    """While it is made ready no linear is tuned; afterwards each has its default tiles, whatever a table says."""
    from engine.gpu.choice import kernels_for

    if not kernels_for(loaded.model.device, loaded.model.dtype):
        yield
        return
    from engine.gpu import put
    from engine.gpu.linear import default

    with mock.patch.object(put, "tune", lambda *unused, **more: None, create=True):
        yield
    for linear in linears_of(loaded.model):
        linear.config = default(linear.out_features, linear.in_features, linear.act is not None)


def compile_candidates(linears: list[Any]) -> bool:
    """Compile every candidate of their shapes, all cores at once; whether this engine can."""
    from engine.gpu import tuning

    compile_all = getattr(tuning, "compile_all", None)
    if compile_all is not None:
        compile_all(linears)
    return compile_all is not None


def tune(linears: list[Any]) -> list[dict[str, Any]]:
    """Time the candidates of every shape: an entry for each, with its n, k, gated, bias and the fastest config. May
    leave the linears with it."""
    from engine.gpu import tuning

    found: Any = tuning.tune(linears, lambda text, share: print(text, flush=True))
    return entries(linears) if found is None else found


def entries(linears: list[Any]) -> list[dict[str, Any]]:
    """Of every shape its tiles as they are now."""
    found = {tuple(_key(linear).values()): {**_key(linear), "config": asdict(linear.config)} for linear in linears}
    return list(found.values())


def put_tiles(linears: list[Any], known: list[dict[str, Any]]) -> int:
    """Give linears the tiles of such entries; how many got theirs."""
    if not linears:
        return 0
    config_of = type(linears[0].config)
    tiles, num = {tuple(entry[key] for key in ("n", "k", "gated", "bias")): config_of(**entry["config"]) for entry in known}, 0
    for linear in linears:
        if (config := tiles.get(tuple(_key(linear).values()))) is not None:
            linear.config, num = config, num + 1
    return num


def _key(linear: Any) -> dict[str, Any]:
    return {"n": linear.out_features, "k": linear.in_features, "gated": linear.act is not None, "bias": linear.bias is not None}
