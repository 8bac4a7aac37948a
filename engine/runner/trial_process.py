"""The process that tries a device's kernels: see `kernel_trial.py`.

It draws a model of the same shapes with few layers and random weights. Its steps must agree with torch's kernels
(`agreement.py`), and the tokens that are chosen with torch's choice."""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from ..core.errors import RaceError, words
from ..core.sampling.sampler import Sampler
from ..core.spec import SamplingParams
from ..kernels.choose import choose
from .agreement import check_agreement
from .kernel_trial import WRONG
from .prepare import prepare
from .prepared import Prepared

ROWS, TEMPERATURES = 8, (0.0, 0.8)  # rows of logits and temperatures at which the choice of tokens is compared
NEAR = 0.01  # Tolerance of scores: the kernels' noise differs from torch's in the last bits. The logits' spread is 3.


def main() -> int:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries' output is no answer
    with answer:
        try:
            why = what_is_wrong(json.load(sys.stdin))
        except Exception as error:
            traceback.print_exc()
            print(words(error), file=answer)
            return 1
        print(why, file=answer)
    return WRONG if why else 0


def what_is_wrong(request: Mapping[str, Any]) -> str:
    """What is wrong with the kernels for that request; "" if they agree with torch's. Raises what keeps them from being
    tried."""
    prepared = ready_to_try(request)
    try:
        for check in CHECKS.values():
            check(prepared)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        traceback.print_exc()
        return words(error)
    return ""


def ready_to_try(request: Mapping[str, Any]) -> Prepared:
    """A small model of that request on the kernels, which nobody has tried."""
    device, dtype = torch.device(request["device"]), getattr(torch, request["dtype"])
    kernels = choose(device, dtype)
    prepared = prepare(_drawn(request["config"], dtype, device), kernels.lower("not tried yet"))
    if prepared.kernels.graph_pool() is None:
        raise RaceError("steps of the small model cannot be captured")
    kernels.install(prepared.model)
    return replace(prepared, kernels=kernels)


def _drawn(config: dict[str, Any], dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[config["model_type"]].from_dict(config), dtype=dtype)
    model.to_empty(device=device)
    with torch.device(device), torch.no_grad():
        model.init_weights()
    return model.eval().requires_grad_(False)


@torch.inference_mode()
def _check_choice(prepared: Prepared) -> None:
    """Raises RaceError for tokens that torch would not choose from the same rows, apart from rounding."""
    vocab = prepared.vocab_size
    rows = 3 * torch.randn(ROWS, vocab, generator=torch.Generator().manual_seed(0))
    rows[0, vocab // 2] = torch.nan
    logits = rows.to(prepared.device, prepared.dtype)
    for temperature in TEMPERATURES:
        sampler = Sampler(SamplingParams(temperature=temperature, seed=7), vocab, prepared.kernels)
        keys = sampler.keys(ROWS)
        chosen, leads = sampler.pick_rows_with_margins(logits, keys)
        scores = sampler.row_scores(logits, keys).float()
        (best, second), chosen_scores = scores.topk(2).values.T, scores.gather(1, chosen.clamp(min=0)[:, None])[:, 0]
        right = (chosen >= 0) & (chosen_scores >= best - NEAR) & ((leads - (best - second)).abs() <= NEAR)
        right[0] = chosen[0] == -1  # the choice for a NaN row
        if wrong := ROWS - int(right.sum()):
            raise RaceError(f"of {ROWS} tokens chosen at temperature {temperature:g} {wrong} are not those of torch")


CHECKS = {"steps, deep in the cache": check_agreement, "the choice of tokens": _check_choice}  # what is tried

if __name__ == "__main__":
    sys.exit(main())
