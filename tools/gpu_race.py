"""For gpu_session.py: races of models with random weights, whose drafts are synthetic and cost what heads and draft
models of the published sizes cost."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from gpu_part import Part
from gpu_shapes import DRAFT, HYBRID, HYBRID_DRAFT, TARGET

HEAD_DIM = 128
EAGLE3_WORDS = 32_000
RACES = (
    ("dflash", 15, 0.8),
    ("eagle3", 7, 0.85),
    ("eagle3", 3, 0.77),
    ("draft_model", 5, 0.8),
    ("", 7, 0.8),
    ("", 15, 0.95),
    ("", 7, 0.5),
)
"""What a draft costs, k, and the rate of acceptance: 4.9, 4.9, 2.8, 3.7, 4.2, 11.2 and 2.0 tokens a step."""


def race(part: Part) -> None:
    """Of Qwen3-8B's shape."""
    _races(part, TARGET, DRAFT)


def race_hybrid(part: Part) -> None:
    """Of Qwen3.5-9B's shape."""
    _races(part, HYBRID, HYBRID_DRAFT)


def _races(part: Part, target: str, draft: str) -> None:
    loaded = part.model(target)
    for cost, k, rate in part.each(RACES[:: 3 if target == HYBRID else 1][:4] if part.small else RACES):
        k = min(k, 3) if part.small else k
        drafter = f"synthetic:{rate}"
        if cost == "draft_model":
            drafter += f"+draft_model:random:{part.shape(draft)}"
        elif cost:
            drafter += f"+{cost}:{head(part, loaded, cost)}"
        what = f"{cost or 'free drafts'}, k {k}, {rate} of drafted tokens accepted"
        try:
            part.row("races", what=what, **race_of(part, loaded, drafter, k))
        except Exception as error:  # one drafter that does not work leaves the others
            part.row("races", what=what, failed=f"{type(error).__name__}: {error}"[:1000])
    if wrong := [row["what"] for row in part.found.get("races", ()) if row.get("failed") or row.get("failed_lanes")]:
        raise SystemExit(f"failed: {'; '.join(wrong)}")


def race_of(part: Part, loaded: Any, drafter: str, k: int, audit: bool = False) -> dict[str, Any]:
    """One race of plain, baseline and a lane that drafts so: tokens per second of every lane, the speed-up, the
    verdict."""
    from engine.events import Failed, Prompt, Step
    from engine.session import TorchRace
    from engine.spec import RaceSpec, SamplingParams, standard_lanes

    ids = tuple((i * 7919) % (400 if part.small else 2000) + 5 for i in range(24 if part.small else 512))
    params = SamplingParams(temperature=0.8, seed=1, max_new_tokens=8 if part.small else 256)
    made = TorchRace(loaded, RaceSpec(standard_lanes(drafter, k), params, audit=audit), Prompt("", ids))
    steps: dict[str, list[Step]] = {}
    failed: dict[str, str] = {}
    for event in made.events():
        if isinstance(event.event, Step):
            steps.setdefault(event.lane, []).append(event.event)
        elif isinstance(event.event, Failed):
            failed[event.lane] = event.event.message
    row: dict[str, Any] = {
        "k": k,
        "synthetic": "synthetic" in drafter,
        "widths": made.widths.plan.note,
        "plain_width": made.widths.plan.plain_width,
        "step_s": made.widths.seconds,
        "failed_lanes": failed,
    }
    for name, lane in steps.items():
        num, seconds = sum(len(step.token_ids) for step in lane), sum(step.seconds for step in lane)
        row[name] = {
            "tokens_per_s": num / seconds,
            "tokens_a_step": num / len(lane),
            "step_ms": 1e3 * statistics.median(step.seconds for step in lane),
            "draft_ms": 1e3 * statistics.median(step.draft_s for step in lane),
        }
    if {"speculative", "plain"} <= row.keys():
        row["speedup"] = row["speculative"]["tokens_per_s"] / max(
            row[name]["tokens_per_s"] for name in ("plain", "baseline") if name in row
        )
    verdict = made.result()["verdicts"].get("speculative", {})
    return {**row, "verdict": verdict.get("kind"), "sentence": verdict.get("sentence")}


def head(part: Part, loaded: Any, kind: str) -> Path:
    """A folder with a head for that model, of the published heads' size and random weights: its drafts mean nothing,
    its time does. DFlash: 5 layers as wide as the target, blocks of 16, the target's own embedding and output rows;
    EAGLE-3: one layer, 32,000 words of its own."""
    import torch
    from transformers import LlamaConfig, Qwen3Config

    from engine.heads.dflash import DFlashHead
    from engine.heads.eagle3 import Eagle3Head
    from engine.heads.formats import HeadSpec
    from engine.training.heads import save_head

    folder = part.out.parent / f"{kind}_{loaded.model.config.model_type}"
    if folder.exists():
        return folder
    config = loaded.model.config.get_text_config()
    size, vocab_size, num_layers = config.hidden_size, config.vocab_size, config.num_hidden_layers
    num_heads = max(1, size // HEAD_DIM)
    shape: dict[str, Any] = {
        "hidden_size": size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": (1 if part.small else 5) if kind == "dflash" else 1,
        "num_attention_heads": num_heads,
        "num_key_value_heads": max(1, num_heads // 4),
        "head_dim": HEAD_DIM,
        "vocab_size": vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    made: Any
    with torch.device("cpu" if part.small else part.device):
        if kind == "eagle3":
            spec = HeadSpec(
                "eagle3",
                LlamaConfig(**shape),
                tuple(sorted({min(2, num_layers), num_layers // 2, max(0, num_layers - 3)})),
                norm_before_residual=True,
                norm_before_fc=False,
            )
            made = Eagle3Head(spec, size, min(EAGLE3_WORDS, vocab_size // 2))
            made.target_ids = torch.arange(made.lm_head.out_features)
        else:
            num = shape["num_hidden_layers"]
            reads = tuple(sorted({1 + i * (num_layers - 2) // max(1, num - 1) for i in range(num)}))
            layers = Qwen3Config(**shape, layer_types=["full_attention"] * num, use_sliding_window=False)
            made = DFlashHead(
                HeadSpec(
                    "dflash",
                    layers,
                    reads,
                    block_size=16,
                    mask_token_id=4,
                    causal=(False,) * num,
                    windows=(None,) * num,
                ),
                size,
                None,
            )
        made = made.to(torch.bfloat16)
        for parameter in made.parameters():
            parameter.data.normal_(std=0.02)
    save_head(made, folder, loaded.info.name, 15 if kind == "dflash" else 7)
    return folder
