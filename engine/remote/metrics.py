"""What a server counts about itself, over all its users, at /metrics: Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats; https://docs.vllm.ai/en/v0.32.0/usage/metrics.html;
llama-server with --metrics, tools/server/README.md; SGLang with --enable-metrics, srt/observability."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx

from .client import CONNECT_S, body_of, new_client
from .dialects import DIALECTS, Dialect
from .endpoint import Endpoint

MAX_BYTES = 16 * 1024**2
PATHS = "/metrics", "/prometheus/metrics"  # the second one is TensorRT-LLM's, whose first is JSON
_SAMPLE = re.compile(
    r'^([A-Za-z_][\w:]{0,199})(?:\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\})?[ \t]+(\S{1,32})'
    r"(?:[ \t]+-?[\d.]+)?(?:[ \t]+#.*)?[ \t\r]*$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
MODEL_LABELS = ("model_name", "model")
# Counters of drafts, without `_total`: of vLLM from 2024 to today and of llama.cpp; the last one is SGLang's.
ACCEPTED, DRAFTED = "spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"
EMITTED, DRAFTS, VERIFIED = "spec_decode_num_emitted_tokens", "spec_decode_num_drafts", "spec_verify_calls"
CACHE_HITS, GENERATED = "prefix_cache_hits", "generation_tokens"
# Other programs have vLLM's names after a prefix of their own: lmdeploy, fastdeploy.
_OTHERS = re.compile(rf"(\w+:)(?:{ACCEPTED}|{DRAFTS})(?:_total)?")
MOST = 1.1  # of a piece's mean tokens that a verification may write


@dataclass(frozen=True)
class Counters:
    """A server's counters for one model since its start, by their names without the program's and `_total`.

    dialect: the program, which counts drafts where it speculates; None if the names are not of one."""

    values: dict[str, float]
    dialect: Dialect | None = None

    @property
    def has_drafts(self) -> bool:
        """Whether it counts drafts."""
        return any(name in self.values for name in (ACCEPTED, DRAFTED, DRAFTS, VERIFIED))

    def since(self, before: Counters, *names: str) -> float | None:
        """By how much the first of these that exists has grown; None if none does, or the server has restarted."""
        for name in names:
            if name in self.values:
                grown = self.values[name] - before.values.get(name, 0.0)
                return grown if grown >= 0 else None
        return None


NOTHING = Counters({})


async def read_counters(endpoint: Endpoint, root: str = "") -> Counters:
    """Those of the endpoint's model; NOTHING if the server reports none. root: where the model comes from, another name
    of it."""
    counters, url = NOTHING, endpoint.bases[0].removesuffix("/v1")
    with suppress(TimeoutError, httpx.HTTPError, httpx.StreamError, httpx.InvalidURL):
        async with asyncio.timeout(CONNECT_S), new_client() as client:
            for path in PATHS:
                async with client.stream("GET", url + path, headers=endpoint.headers()) as response:
                    received = await body_of(response.aiter_bytes(), MAX_BYTES)
                if response.status_code == 200:
                    counters = counters_in(received.decode("utf-8", "replace"), endpoint.model, root)
                if counters.dialect:
                    break
    return counters


def counters_in(text: str, model: str, root: str = "") -> Counters:
    """Summed over a server's engines. Of several models, those whose label names this one; what counts without such a
    label counts for all of them."""
    samples = list(_samples(text))
    models = {label for _, labels, _ in samples if (label := _model_in(labels))}
    own = {model, root} - {""} if len(models) > 1 else models
    values: dict[str, float] = {}
    names = [name for name, _, _ in samples]
    dialects = [dialect for dialect in DIALECTS if dialect.metrics]
    known = next((dialect for name in names for dialect in dialects if name.startswith(dialect.metrics)), None)
    if known is None and (other := next(filter(None, map(_OTHERS.fullmatch, names)), None)):
        known = Dialect("", metrics=other[1])
    for name, labels, value in samples:
        if known and name.startswith(known.metrics) and _model_in(labels) in own | {""} and "position" not in labels:
            short = name.removeprefix(known.metrics).removesuffix("_total")
            values[short] = values.get(short, 0.0) + value
    return Counters(values, known)


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for name, labels, written in _SAMPLE.findall(text):
        try:
            value = float(written)
        except ValueError:
            continue
        if math.isfinite(value):
            yield name, dict(_LABEL.findall(labels)), value


def _model_in(labels: dict[str, str]) -> str:
    return next((labels[name] for name in MODEL_LABELS if name in labels), "")


def per_step(
    before: Counters, after: Counters, num_answers: int, num_tokens: int, num_chunks: int
) -> tuple[float | None, str]:
    """Tokens of a verification, between two readings: vLLM's definition, 1 + accepted draft tokens per draft; None if
    nothing was drafted, or it is not known. And why a count cannot be that of these answers, which makes it unknown,
    else "".

    num_answers, num_tokens, num_chunks: of the answers in between."""
    num_accepted = after.since(before, ACCEPTED)
    num_drafts = after.since(before, DRAFTS, VERIFIED)
    if num_drafts is None and num_accepted is not None and (emitted := after.since(before, EMITTED)) is not None:
        num_drafts = emitted - num_accepted  # vLLM until 2024
    if num_accepted is None and num_drafts and (generated := after.since(before, GENERATED)) is not None:
        num_accepted = generated - num_answers - num_drafts  # SGLang
    if not num_drafts or num_accepted is None or num_accepted < 0 or num_drafts < 0:
        return None, ""
    length, num_drafted = 1 + num_accepted / num_drafts, after.since(before, DRAFTED)
    if num_drafted is not None and num_accepted > num_drafted:
        return None, f"its metrics count {num_accepted:g} accepted tokens of {num_drafted:g} drafted ones"
    num_later, num_steps = num_tokens - num_answers, num_chunks - num_answers  # an answer's first token has no draft
    if after.dialect and after.dialect.has_steps and num_steps > 0 and length * num_steps > MOST * num_later:
        size = num_later / num_steps
        return None, f"its metrics count {length:.2f} tokens a step, but a piece of its answers has {size:.2f}"
    return length, ""
