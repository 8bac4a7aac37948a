"""Plain against speculative decoding of the same model: same tokens, fair times.

The public names, each imported on first use, so that `import engine` costs nothing (docs/README.md uses most of them):

    load            a model and its tokenizer, ready to race
    encode_prompt   a text as a Prompt: its token ids for that model
    SamplingParams, LaneSpec, RaceSpec, standard_lanes    what to race
    TorchRace       a race on this machine: `header()`, `events()`, `result()`
    Step            one step of a lane: what was drafted, accepted and written, and how long it took
    lane_metrics, race_speedup    the figures
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis.metrics import lane_metrics, race_speedup
    from .core.events import Prompt, Step
    from .core.spec import LaneSpec, RaceSpec, SamplingParams, standard_lanes
    from .loading.loading import load
    from .session import TorchRace
    from .text import encode_prompt

_PLACES = {
    "analysis.metrics": ("lane_metrics", "race_speedup"),
    "core.events": ("Prompt", "Step"),
    "loading.loading": ("load",),
    "session": ("TorchRace",),
    "core.spec": ("LaneSpec", "RaceSpec", "SamplingParams", "standard_lanes"),
    "text": ("encode_prompt",),
}
__all__ = [
    "LaneSpec",
    "Prompt",
    "RaceSpec",
    "SamplingParams",
    "Step",
    "TorchRace",
    "encode_prompt",
    "lane_metrics",
    "load",
    "race_speedup",
    "standard_lanes",
]


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has: {', '.join(__all__)}")
