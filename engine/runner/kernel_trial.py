"""Finds out whether a device's kernels are right, once for a machine and a model's shapes, in a separate process
(`trial_process.py`): an illegal access or a hang then ends that process and not this one. The verdict is cached.

The process reads a JSON object (`_request`). Its status is 0 if they are right, WRONG if they are not, and another if
they could not be tried; then it writes why, in a sentence."""

import hashlib
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import torch
import transformers
from transformers import PreTrainedModel

from ..cache import read_json, write_json
from ..core.errors import in_a_line
from ..kernels.choose import choose
from ..kernels.torch import Kernels
from ..progress import Progress, silent

log = logging.getLogger(__name__)
PROCESS = Path(__file__).with_name("trial_process.py")
COMMAND = (sys.executable, "-m", "engine.runner.trial_process")
ROOT = PROCESS.parents[2]
WRONG = 3
LIMIT_S = 300.0  # there are some forty kernels to compile, a second or two each
GRACE_S = 10.0  # for the process to end in
LEAST_LAYERS = 2  # a decoder's first layer is entered differently from those after it
NOT_THE_SHAPE = {"_name_or_path", "architectures", "dtype", "quantization_config", "transformers_version"}


def tried(model: PreTrainedModel, kernels: Kernels, progress: Progress = silent) -> str:
    """Why `kernels` are not to run; "" if they are right. The model is fused, without them. Takes about a minute unless
    cached. If they could not be tried, the next load tries again."""
    name = _name(model)
    if isinstance(why := (read_json(name) or {}).get("why"), str):
        return why
    kernels.give_back_memory()
    progress("trying the GPU's kernels, once for this machine and model", None)
    with TemporaryFile("w+") as said:
        try:
            why, is_verdict = _verdict(_request(model), said)
        except OSError as error:
            why, is_verdict = in_a_line(error), False
        said.seek(0)
        if words := said.read():
            log.warning("the trial of the GPU's kernels said:\n%s", words)
    if not is_verdict:
        return f"it could not be tried: {why}"
    write_json(name, {"why": why})
    return why


def condemn(model: PreTrainedModel, why: str) -> None:
    """Remember not to run the kernels for this model, from which they have been removed."""
    write_json(_name(model), {"why": why})


def _name(model: PreTrainedModel) -> str:
    """The name of the verdict's file, from everything it may depend on. The model has no kernels."""
    weight = next(model.parameters())
    about = {
        "request": _request(model),
        "identity": choose(weight.device, weight.dtype).identity(model),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "source": hashlib.sha256(PROCESS.read_bytes()).hexdigest(),
    }
    return f"trial-{hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]}.json"


def _request(model: PreTrainedModel) -> dict[str, Any]:
    weight = next(model.parameters())
    return {
        "config": _with_few_layers(model.config),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": str(weight.device),
    }


def _with_few_layers(config: Any) -> dict[str, Any]:
    """The configuration of a model with the same layers, just enough for one of each kind, and tied embeddings."""
    text = config.get_text_config().to_dict()
    num_layers = text["num_hidden_layers"]
    kinds = text.get("layer_types") or [None] * num_layers
    few = max(LEAST_LAYERS, *(kinds.index(kind) + 1 for kind in set(kinds)))
    by_layer = {key: value[:few] for key, value in text.items() if isinstance(value, list) and len(value) == num_layers}
    small = {**text, **by_layer, "num_hidden_layers": min(few, num_layers), "tie_word_embeddings": True}
    return {key: value for key, value in small.items() if key not in NOT_THE_SHAPE}


def _verdict(request: Mapping[str, Any], stderr: IO[str]) -> tuple[str, bool]:
    """Why the kernels are wrong, or "", and whether that is a verdict: whatever ended or stopped the process is one,
    unless the process itself gave up."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=stderr, text=True, cwd=ROOT)
    try:
        why = process.communicate(json.dumps(request, default=str), LIMIT_S)[0].strip()
    except subprocess.TimeoutExpired:
        return f"no answer for {LIMIT_S:g} s", True
    finally:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # a GPU that hangs may hold on to it
            process.wait(GRACE_S)
    code = process.returncode
    status = signal.Signals(-code).name if code < 0 else f"status {code}"
    return why or (f"its process ended with {status}" if code else ""), code in (0, WRONG) or code < 0
