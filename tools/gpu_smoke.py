"""For gpu_session.py: every Triton kernel once on small shapes, against the same in float64 (the delta rule: against
torch's in float32)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpu_part import Part
from gpu_shapes import HYBRID, TARGET

EPS = 1e-6
LIMIT = 0.02
"""Of the largest number of a row: a few roundings of bfloat16, whose own is 0.004."""


def smoke(part: Part) -> None:
    """An error for each kernel. Where one takes the device down with it, those before it are written."""
    import torch

    from engine.kernels.cuda.available import reason_against

    device = torch.device(part.device)
    if device.type != "cuda":
        part.put(skipped=f"no kernel runs here: {reason_against(device)}")
        return
    if (why := reason_against(device)) is not None:
        raise SystemExit(f"the kernels cannot run: {why}")
    wrong = []
    for name, check in _checks(device, part.small).items():
        part.put(running=name)
        with torch.inference_mode():
            found, right = check()
        error = float(
            ((found.double() - right.double()).abs().amax(-1) / right.double().abs().amax(-1).clamp(min=1e-6)).max()
        )
        ok = error <= LIMIT  # a number that is none is not
        part.row("checks", name=name, error=error, ok=ok)
        wrong += [] if ok else [name]
    part.put(running=None, wrong=wrong)
    for name in () if part.small else part.each((TARGET, HYBRID)):
        deep_in_the_cache(part, name)
    if wrong:
        raise SystemExit(f"wrong: {', '.join(wrong)}")


def deep_in_the_cache(part: Part, name: str) -> None:
    """A whole model's kernels against torch's at about 1,000 and 4,000 columns and past a window: the engine's own
    check, which loading runs too."""
    from engine.target.agreement import agreement

    part.row("deep_in_the_cache", model=name, **agreement(part.model(name).prepared))


Check = Callable[[], tuple[Any, Any]]
"""Gives what a kernel gave and what is right, rows of numbers."""


def _checks(device: Any, small: bool) -> dict[str, Check]:
    return dict(
        [*_linears(device, small), *_norms(device), *_attentions(device, small), *_deltas(device), *_picks(device)]
    )


def _random(device: Any, *size: int, dtype: Any = None) -> Any:
    import torch

    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size))).to(device, dtype or torch.bfloat16)


def _linears(device: Any, small: bool) -> Iterator[tuple[str, Check]]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    from engine.kernels.cuda.linear import GpuLinear

    def made(n: int, k: int, act: str | None = None, bias: bool = False, **config: Any) -> Any:
        from dataclasses import replace

        linear = nn.Linear(k, n if act is None else 2 * n, bias, device="meta", dtype=torch.bfloat16).requires_grad_(
            False
        )
        linear.weight = nn.Parameter(_random(device, linear.out_features, k) / k**0.5, requires_grad=False)
        if bias:
            linear.bias = nn.Parameter(_random(device, linear.out_features), requires_grad=False)
        kernels = GpuLinear(linear, act)
        kernels.config = replace(kernels.config, **config)
        return kernels

    def exact(linear: Any, x: Any) -> Any:
        products = F.linear(x.double(), linear.weight.double(), None if linear.bias is None else linear.bias.double())
        if linear.act is None:
            return products
        gate, up = products.chunk(2, -1)
        return (F.silu(gate) if linear.act == "silu" else F.gelu(gate, approximate="tanh")) * up

    n, k = (64, 128) if small else (1024, 2048)
    shapes: dict[str, dict[str, Any]] = {
        "plain": {},
        "with bias": {"bias": True},
        "split in four": {"split_k": 4},
        "weights first": {
            "block_n": 64,
            "block_k": 64 if small else 128,
            "num_warps": 4,
            "num_stages": 4,
            "weights_first": True,
        },
        "gated by silu": {"act": "silu"},
        "gated by gelu": {"act": "gelu_tanh"},
    }
    for name, more in shapes.items():
        for rows in (5,) if small else (1, 5, 16):

            def check(more: dict[str, Any] = more, rows: int = rows) -> tuple[Any, Any]:
                linear, x = made(n, k, **more), _random(device, rows, k)
                linear(x)  # twice: the counters of a split must be zeros again
                return linear(x), exact(linear, x)

            yield f"linear {name}, {rows} rows", check

    def added() -> tuple[Any, Any]:
        first, second = made(n, k), made(n, n, "silu")
        x, residual, scale = (
            _random(device, 5, k),
            _random(device, 5, n),
            1 + 0.1 * _random(device, n, dtype=torch.float32),
        )
        found = second.normed(first.add_to(x, residual, scale), EPS)
        rows = residual.double() + exact(first, x).bfloat16().double()
        return found, exact(second, torch.rms_norm(rows, (n,), None, EPS) * scale.double())

    yield "a linear that adds, and one that norms", added


def _norms(device: Any) -> Iterator[tuple[str, Check]]:
    import torch

    from engine.kernels.cuda.rmsnorm import add_normed, normed

    def exact(x: Any, scale: Any) -> Any:
        return torch.rms_norm(x.double(), x.shape[-1:], None, EPS) * scale.double()

    x, y, a, b = (
        _random(device, 5, 640),
        _random(device, 5, 640) / 2,
        *(1 + _random(device, 640, dtype=torch.float32) / place for place in (4, 5)),
    )
    yield "norm", lambda: (normed(x, a, EPS), exact(x, a))
    yield (
        "addition of a norm, and its norm",
        lambda: (add_normed(x, y, a, b, EPS)[1], exact((x.double() + exact(y, a)), b)),
    )


def _attentions(device: Any, small: bool) -> Iterator[tuple[str, Check]]:
    import torch

    from engine.kernels.cuda.attention import attend, num_arrivals
    from engine.kernels.cuda.qkv_rope_cache import place

    def exact(query: Any, keys: Any, values: Any, at: Any, window: int | None) -> Any:
        columns = torch.arange(keys.shape[2], device=device)
        seen = columns <= at[:, None]
        if window is not None:
            seen = seen & (columns > at[:, None] - window)
        keys, values = (side.double().repeat_interleave(query.shape[1] // keys.shape[1], 1) for side in (keys, values))
        scores = (query.double().transpose(0, 1) @ keys[0].transpose(1, 2)) * query.shape[-1] ** -0.5
        return (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ values[0]).transpose(0, 1).flatten(1)

    length, first = (192, 120) if small else (4352, 4000)
    for heads, kv_heads, dim in ((4, 1, 64),) if small else ((32, 8, 128), (16, 4, 256), (4, 1, 64)):
        for window, merged in ((None, False), (None, True), (40, False)):

            def check(
                heads: int = heads,
                kv_heads: int = kv_heads,
                dim: int = dim,
                window: int | None = window,
                merged: bool = merged,
            ) -> tuple[Any, Any]:
                query, at = _random(device, 5, heads, dim), torch.arange(first, first + 5, device=device)
                keys, values = (
                    _random(device, 1, kv_heads, length, dim),
                    _random(device, 1, kv_heads, length, dim).roll(1, 2).contiguous(),
                )
                arrivals = (
                    torch.zeros(num_arrivals(5, heads, kv_heads), dtype=torch.int32, device=device) if merged else None
                )
                return attend(query, keys, values, at, window, dim**-0.5, arrivals), exact(
                    query, keys, values, at, window
                )

            yield (
                f"attention of {heads} heads of {dim}, window {window}{', one launch' if merged else ''}, at column "
                f"{first}",
                check,
            )

    def placed() -> tuple[Any, Any]:
        heads, kv_heads, dim, rows = 4, 2, 64, 5
        qkv, scales = (
            _random(device, rows, (heads + 2 * kv_heads) * dim),
            1 + _random(device, heads + kv_heads, dim, dtype=torch.float32) / 8,
        )
        cos, sin = (_random(device, rows, dim + extra)[:, :dim].contiguous() for extra in (0, 1))
        keys, values = (torch.zeros(1, kv_heads, 64, dim, dtype=torch.bfloat16, device=device) for _ in range(2))
        query = place(qkv, cos, sin, scales, EPS, keys, values, torch.arange(9, 9 + rows, device=device), heads)
        parts = qkv.double().view(rows, -1, dim)
        turned = torch.rms_norm(parts[:, : heads + kv_heads], (dim,), None, EPS) * scales.double()
        turned = turned * cos.double()[:, None] + turned.roll(dim // 2, -1) * sin.double()[:, None]
        right = torch.cat((turned, parts[:, heads + kv_heads :]), 1)
        return torch.cat(
            (query, keys[0, :, 9 : 9 + rows].transpose(0, 1), values[0, :, 9 : 9 + rows].transpose(0, 1)), 1
        ), right

    yield "queries, keys and values put in their places", placed


def _deltas(device: Any) -> Iterator[tuple[str, Check]]:
    """A linear layer's step: kernels in bfloat16 against torch in float32 of the same weights."""
    import copy

    import torch
    from gpu_shapes import SMALL
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from engine.kernels.cuda.delta import mix_step
    from engine.model.delta_places import Places
    from engine.model.delta_rule import DeltaLayer

    def check() -> tuple[Any, Any]:
        config: Any = SMALL[HYBRID]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[config["model_type"]].from_dict(config))
        stock: Any = (
            next(module for name, module in model.named_modules() if name.endswith("linear_attn"))
            .bfloat16()
            .requires_grad_(False)
        )
        s = DeltaLayer(stock).shape
        sizes = (s.conv_dim, s.num_value_heads * s.value_dim, s.num_value_heads, s.num_value_heads)
        rows = [_random(device, 7, size) for size in sizes]
        found = []
        for dtype, mix in ((torch.bfloat16, mix_step), (torch.float32, DeltaLayer.mix)):
            on_device = _moved(DeltaLayer(copy.deepcopy(stock).to(dtype)), device)
            states, inputs = s.ring_sizes(17)
            rings = torch.zeros(states, device=device), torch.zeros(inputs, dtype=dtype, device=device)
            out = []
            for start, width in ((0, 1), (1, 2), (3, 4)):
                places = Places.of(torch.arange(start, start + width, device=device), s, 17, False)
                out.append(mix(on_device, tuple(x[start : start + width].to(dtype) for x in rows), places, *rings))
            found.append(torch.cat(out))
        return found[0], found[1]

    yield "gated delta rule", check


def _moved(module: Any, device: Any) -> Any:
    """On the device, weight by weight."""
    from torch import nn

    for part in module.modules():
        for name, weight in part._parameters.items():
            part._parameters[name] = None if weight is None else nn.Parameter(weight.to(device), requires_grad=False)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else buffer.to(device)
    return module


def _picks(device: Any) -> Iterator[tuple[str, Check]]:
    import torch

    from engine.choice.sampler import Sampler
    from engine.kernels.choose import choose
    from engine.kernels.cuda.sample import pick_rows
    from engine.spec import SamplingParams

    for temperature in (0.0, 0.8):

        def check(temperature: float = temperature) -> tuple[Any, Any]:
            on_cpu = Sampler(SamplingParams(temperature=temperature, seed=5), 5000, choose(torch.device("cpu")))
            rows, keys = _random(torch.device("cpu"), 3, 5000, dtype=torch.float32), on_cpu.keys(9)[4:7].contiguous()
            found = pick_rows(
                rows.to(device), torch.arange(5000, dtype=torch.int32, device=device), keys.to(device), temperature
            )[0]
            return found[:, None], torch.tensor([[on_cpu(row, 4 + place)] for place, row in enumerate(rows)]).to(device)

        yield f"choice of a token at temperature {temperature}", check
