"""What a load tries before it runs our kernels, part by part. Also draft heads, which it does not know yet."""

from typing import Any

import torch
from torch import Tensor

from engine.core.events import Prompt
from engine.core.interfaces import Node
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.drafters import DrafterContext
from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter
from engine.heads.names import parse_name
from engine.kernels.choose import choose
from engine.loading.load_head import load_head
from engine.loading.loading import LoadedModel, ModelInfo
from engine.loading.random_targets import config_file, read_config
from engine.progress import silent
from engine.runner.trial_process import CHECKS, ready_to_try
from tools.gpu.part import Part
from tools.gpu.shapes import TARGET, head, target

K, IDS = 5, tuple(range(5, 45))
MOST_APART = 0.1  # the mean error of a row of logits, as a share of its spread; tests allow 0.04
DRAFTERS: dict[str, Any] = {"eagle3": Eagle3Drafter, "dflash": DFlashDrafter}


def trial(part: Part) -> None:
    """Two layers of Qwen3-8B's shape, and heads of the published sizes for them."""
    if not choose(torch.device("cuda"), torch.bfloat16).must_be_tried:
        part.row("there are no kernels of ours to try")
        return
    name = target(part, TARGET, num_hidden_layers=2, tie_word_embeddings=True)
    prepared = ready_to_try({"config": read_config(config_file(name)), "dtype": "bfloat16", "device": "cuda"})
    for what, check in CHECKS.items():
        part.attempt(what, check, prepared)
    loaded = LoadedModel(prepared.model, None, ModelInfo(name, "", "", "bfloat16", "cuda", ""), {"prepared": prepared})
    for kind in DRAFTERS:
        part.attempt(f"a head, {kind}", compare, part, loaded, kind)


def compare(part: Part, loaded: Any, kind: str) -> None:
    """Rows of logits of a head on our kernels with those on torch's."""
    read = load_head(kind, parse_name(kind, str(head(part, loaded, kind))), loaded, silent)
    ours, theirs = (_rows(loaded, read, kind, on_torch) for on_torch in (False, True))
    apart = float(((ours - theirs).abs().mean(-1) / theirs.std(-1)).max())
    says = f"{kind}: rows are {apart:.3f} of their spread from torch's, which may be {MOST_APART}"
    part.row(says, apart <= MOST_APART, apart=apart)


def _rows(loaded: Any, read: Any, kind: str, on_torch: bool) -> Tensor:
    """After a prompt and a step: of a block, or of the first two tokens of a chain."""
    sample = Sampler(SamplingParams(), loaded.prepared.vocab_size, loaded.prepared.kernels)
    context = DrafterContext(loaded, SamplingParams(), K, 256, sample, Prompt("", IDS), None, silent)
    drafter = DRAFTERS[kind](read, context)
    assert drafter._own is not None, drafter.runs
    drafter._own = None if on_torch else drafter._own
    hidden = torch.randn(len(IDS), drafter.buffers.hidden.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        drafter.prefill(IDS[:-3], hidden[:-4].to(drafter.buffers.hidden))
        drafter.begin(IDS, hidden[-4:-1].to(drafter.buffers.hidden))
        first = drafter._rows_of([Node()]).float()
        if kind == "dflash":
            return drafter._block_rows.float()
        return torch.cat([first, drafter._rows_of([Node((7,), parent=Node())]).float()])
