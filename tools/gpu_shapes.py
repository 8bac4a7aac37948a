"""For gpu_session.py: the shapes that are measured, tiny ones of the same kinds for dry runs, and how many rows a dry
run is content with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).resolve().parent.parent / "assets" / "configs"
TARGET, HYBRID, DRAFT, HYBRID_DRAFT = (
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3.5-9B",
    "Qwen/Qwen3-0.6B",
    "Qwen3-0.6B-with-Qwen3.5-vocabulary",
)
"""Two targets, and a draft model for each, of its vocabulary."""
SHAPES: dict[str, str | dict[str, Any]] = {
    TARGET: TARGET,
    HYBRID: HYBRID,
    DRAFT: DRAFT,
    HYBRID_DRAFT: json.loads((CONFIGS / "Qwen--Qwen3-0.6B.json").read_text()) | {"vocab_size": 248320},
}
"""Name -> what ships, or a configuration of our own."""
_DENSE = {
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "max_position_embeddings": 4096,
}
_LINEAR = {
    "model_type": "qwen3_5_text",
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
SMALL: dict[str, str | dict[str, Any]] = {
    TARGET: _DENSE,
    HYBRID: _DENSE | _LINEAR,
    DRAFT: _DENSE | {"num_hidden_layers": 1},
    HYBRID_DRAFT: _DENSE | {"num_hidden_layers": 1},
}


def shrink() -> None:
    """Measure and probe next to nothing: for dry runs."""
    from engine.bench import lanes, peers
    from engine.exactness import operators
    from engine.exactness import probe as exactness
    from engine.measure import bandwidth
    from engine.session import set_up as backend

    lanes.CURVE, peers.WIDTHS = (1, 4), (1,)
    exactness.MIN_ROWS = 2
    operators.LINEAR_ROWS, operators.ATTENTION_ROUNDS, operators.ATTENTION_ROWS, operators.DELTA_ROWS = (
        (8, 8),
        (1, 1),
        8,
        4,
    )
    backend.ROUNDS = 1
    (
        bandwidth.SECONDS,
        bandwidth.ROUNDS,
        bandwidth.SMALLEST,
        bandwidth.USUAL,
        bandwidth.LARGEST,
        bandwidth.LARGEST_ON_GPU,
    ) = 0.01, 1, 1 << 20, 1 << 20, 1 << 20, 1 << 20
