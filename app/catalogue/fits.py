"""Whether a pair can run here, and if not, why: from its config.json, the hub's answer and the free memory that torch
reports. Reasons are sentences that continue after "it"."""

import logging
from collections.abc import Mapping
from typing import Any

from engine.core.spec import MAX_AUTO_K, standard_lanes
from engine.drafters import weightless
from engine.layers.published import cache_bytes, num_experts, num_parameters, quantised, refusal, text_part
from engine.loading.random_targets import shipped_config
from engine.loading.sources import DEFAULT_TARGET

from .limits import MAX_NEW_TOKENS, MAX_PROMPT_CHARS
from .machine import GIB, Machine

log = logging.getLogger(__name__)
NOT_CHECKED = "is still being checked"
NO_GPU = "torch finds none"
NOT_USED = "torch cannot use this machine's GPU"
DAMAGED = "has a config.json that cannot be read"
SERVER = "; run it on a server"
EXPERTS = f"is a mixture of experts, whose steps wait for the host on a GPU before Hopper (9.0){SERVER}"
LARGEST_GPU = 180 * GIB  # free memory of the largest single GPU (B200)
# Lower bound for a long prompt: English has 4 to 5, code 3 to 4. A denser one that does not fit is refused when its
# race is set up.
CHARS_PER_TOKEN = 3
LONGEST = MAX_PROMPT_CHARS // CHARS_PER_TOKEN + MAX_NEW_TOKENS  # tokens of the longest race
# One for each lane, and one for the untimed run before a `synthetic` one.
NUM_CACHES = len(standard_lanes("ngram", 1)) + 1
NUM_STATES = MAX_AUTO_K + 2
CACHES = "of caches for the longest race"
# For captured graphs, workspaces of libraries and fragmentation. An allowance, not a measurement.
GRAPHS, GRAPH_BYTES = "for graphs", 2 * GIB
HIDDEN_STATES = 6  # the most hidden states that a head reads. It keeps them for every token, and they are copied once.


def reason(target: str, drafter: str, machine: Machine, size: int = 2) -> str:
    """Why this machine cannot race such a pair; "" if it can. size: bytes per weight."""
    if target == DEFAULT_TARGET:
        return ""
    try:
        return _reason(target, drafter, machine, size)
    except Exception:  # a configuration comes from anywhere and can be wrong in any way
        log.info("judging %s by its config.json failed", target, exc_info=True)
        return DAMAGED


def _reason(target: str, drafter: str, machine: Machine, size: int) -> str:
    answer = machine.configs.get(target)
    config = answer if isinstance(answer, Mapping) else shipped_config(target)
    if config and (why := [fault for fault in (refusal(config), quantised(config)) if fault]):
        return ", and it ".join(why) + SERVER
    head = repository(drafter)
    draft = machine.configs.get(head)
    parts = parts_of(config, drafter, draft if isinstance(draft, Mapping) else shipped_config(head), size)
    needed = sum(parts.values())
    total = f"{needed / GIB:.1f} GiB"
    if needed > LARGEST_GPU:
        return f"needs {total} of GPU memory, more than any one GPU has{SERVER}"
    if not machine.gpu:
        return f"needs an NVIDIA GPU with {total} free; this machine has none"
    if machine.gpu_bytes is None or answer is None:
        return NOT_CHECKED
    if machine.gpu_bytes == 0:
        return f"needs an NVIDIA GPU with {total} free; {NOT_USED if machine.no_gpu else NO_GPU}"
    if not machine.captures_experts and num_experts(text_part(config)):
        return EXPERTS
    if needed > machine.gpu_bytes:
        return f"needs {total} of GPU memory ({words_of(parts)}); {machine.gpu_bytes / GIB:.1f} GiB is free"
    if isinstance(answer, str):
        return answer
    if isinstance(draft, str):
        return f"needs the drafter {head}, which {draft}"
    return ""


def repository(drafter: str) -> str:
    """The repository of a drafter's weights; "" if it needs none."""
    name, _, argument = drafter.rpartition("+")[2].partition(":")
    return "" if name in weightless() else argument.partition("#")[0]


def parts_of(config: Mapping[str, Any], drafter: str, draft: Mapping[str, Any], size: int) -> dict[str, int]:
    """Bytes of GPU memory by purpose. size: bytes per weight."""
    length = min(LONGEST, text_part(config).get("max_position_embeddings") or LONGEST)
    return {
        "of weights": num_parameters(config) * size,
        CACHES: NUM_CACHES * cache_bytes(config, length, NUM_STATES, size),
        "for the drafter": _drafter_bytes(config, drafter, draft, length, size) if draft else 0,
        GRAPHS: GRAPH_BYTES,
    }


def words_of(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{num / GIB:.1f} {what}" for what, num in parts.items() if num)


def _drafter_bytes(config: Mapping[str, Any], drafter: str, draft: Mapping[str, Any], length: int, size: int) -> int:
    """Its weights and cache and, for a head, the hidden states that it reads. EAGLE-3 has its own embedding rows for
    every word it reads, and output rows for the words it may draft; DFlash has at most the latter."""
    if drafter.startswith("draft_model:"):
        return num_parameters(draft) * size + cache_bytes(draft, length, NUM_STATES, size)
    layers, hidden = draft.get("transformer_layer_config") or draft, text_part(config).get("hidden_size") or 0
    words = draft.get("draft_vocab_size") or 0
    if "eagle3" in drafter:
        words += layers.get("vocab_size") or 0
    own = num_parameters({**layers, "vocab_size": words, "tie_word_embeddings": True})
    states = HIDDEN_STATES * hidden * (2 * length + hidden)
    return (own + states) * size + cache_bytes(layers, length, NUM_STATES, size)
