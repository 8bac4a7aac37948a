"""A server's own counters of speculative decoding, over all its users: vLLM's and llama.cpp's, at /metrics.

https://docs.vllm.ai/en/v0.32.0/usage/metrics.html; llama-server with --metrics, tools/server/README.md"""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass

import httpx

from .client import CONNECT_S, body_of, new_client
from .endpoint import Endpoint

MAX_BYTES = 16 * 1024**2
NUM_DRAFTS, NUM_ACCEPTED = "spec_decode_num_drafts_total", "spec_decode_num_accepted_tokens_total"
_LINE = re.compile(
    rf"^(?:vllm|llamacpp):({NUM_DRAFTS}|{NUM_ACCEPTED})(?:\{{[^\n]*\}})? ([0-9.eE+]{{1,32}})\s*$", re.MULTILINE
)


@dataclass(frozen=True)
class Counters:
    """Since the server's start: verified drafts, and accepted draft tokens."""

    num_drafts: float
    num_accepted: float


async def read_counters(endpoint: Endpoint) -> Counters | None:
    """None if the server has none, or does not answer."""
    return counters_in(await read_metrics(endpoint))


async def read_metrics(endpoint: Endpoint) -> str:
    """All that the server reports about itself; "" if it does not."""
    try:
        async with asyncio.timeout(CONNECT_S), new_client() as client:
            url = endpoint.url.removesuffix("/v1") + "/metrics"
            async with client.stream("GET", url, headers=endpoint.headers()) as response:
                received = await body_of(response, MAX_BYTES)
    except (TimeoutError, httpx.HTTPError, httpx.StreamError, httpx.InvalidURL):
        return ""
    return received.decode("utf-8", "replace") if response.status_code == 200 else ""


def counters_in(text: str) -> Counters | None:
    """From Prometheus' text format, summed over a server's engines; None if one of the two is missing."""
    sums: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        try:
            sums[name] = sums.get(name, 0.0) + float(value)
        except ValueError:
            return None
    if set(sums) != {NUM_DRAFTS, NUM_ACCEPTED} or not all(map(math.isfinite, sums.values())):
        return None
    return Counters(sums[NUM_DRAFTS], sums[NUM_ACCEPTED])


def acceptance_length(before: Counters | None, after: Counters | None) -> float | None:
    """vLLM's definition: 1 + accepted draft tokens per verified draft, between two readings. None if nothing was
    drafted, a reading is missing, or the server restarted in between."""
    if before is None or after is None:
        return None
    num_drafts, num_accepted = after.num_drafts - before.num_drafts, after.num_accepted - before.num_accepted
    return 1 + num_accepted / num_drafts if num_drafts > 0 and num_accepted >= 0 else None
