"""Finds out whether a device's kernels are right, once for a machine and a model's shapes, in a separate process
(`trial_process.py`): an illegal access or a hang then ends that process and not this one. The verdict is cached.

The process reads a JSON object (`_request`). Its status is 0 if they are right, WRONG if they are not, and another if
they could not be tried; then it writes why, in a sentence."""

import atexit
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
from typing import Any

import torch
import transformers
from torch import nn
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


def begin(config: Any, dtype: torch.dtype, device: torch.device) -> None:
    """Start what `tried` will wait for, while the weights of a model with this configuration are read."""
    about = config, dtype, device
    if choose(device, dtype).must_be_tried and _known(name := _name(*about)) is None and name not in _begun:
        with suppress(OSError):  # `tried` says so
            _begun[name] = Trial(_request(*about))


def tried(model: PreTrainedModel, kernels: Kernels, progress: Progress = silent) -> str:
    """Why `kernels` are not to run; "" if they are right. The model is fused, without them. Takes about a minute unless
    cached. If they could not be tried, the next load tries again."""
    name = _name(*(about := _about(model)))
    if (why := _known(name)) is not None:
        return why
    kernels.give_back_memory()
    progress("trying the GPU's kernels, once for this machine and model", None)
    try:
        why, is_verdict = (_begun.pop(name, None) or Trial(_request(*about))).verdict()
    except OSError as error:
        why, is_verdict = in_a_line(error), False
    if not is_verdict:
        return f"it could not be tried: {why}"
    write_json(name, {"why": why})
    return why


def end_begun() -> None:
    """End what `begin` started and nobody waited for: it would compute on the GPU while a race is timed."""
    while _begun:
        _begun.popitem()[1].end()


def condemn(model: PreTrainedModel, why: str) -> None:
    """Remember not to run the kernels for this model, from which they have been removed."""
    write_json(_name(*_about(model)), {"why": why})


def _known(name: str) -> str | None:
    why = (read_json(name) or {}).get("why")
    return why if isinstance(why, str) else None


def _about(model: PreTrainedModel) -> tuple[Any, torch.dtype, torch.device]:
    weight = next(model.parameters())
    return model.config, weight.dtype, weight.device


def _name(config: Any, dtype: torch.dtype, device: torch.device) -> str:
    """The name of the verdict's file, from everything it may depend on."""
    about = {
        "request": _request(config, dtype, device),
        "identity": choose(device, dtype).identity(nn.Module()),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "source": hashlib.sha256(PROCESS.read_bytes()).hexdigest(),
    }
    return f"trial-{hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]}.json"


def _request(config: Any, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    return {"config": _with_few_layers(config), "dtype": str(dtype).removeprefix("torch."), "device": str(device)}


def _with_few_layers(config: Any) -> dict[str, Any]:
    """The configuration of a model with the same layers, just enough for one of each kind, and tied embeddings."""
    text = config.get_text_config().to_dict()
    num_layers = text["num_hidden_layers"]
    kinds = text.get("layer_types") or [None] * num_layers
    few = max(LEAST_LAYERS, *(kinds.index(kind) + 1 for kind in set(kinds)))
    by_layer = {key: value[:few] for key, value in text.items() if isinstance(value, list) and len(value) == num_layers}
    small = {**text, **by_layer, "num_hidden_layers": min(few, num_layers), "tie_word_embeddings": True}
    return {key: value for key, value in small.items() if key not in NOT_THE_SHAPE}


class Trial:
    """The process, at work on a request. Raises OSError if it cannot be started."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._stderr = TemporaryFile("w+")  # noqa: SIM115  it lives as long as the process; a pipe could fill up
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=self._stderr, text=True, cwd=ROOT)
        atexit.register(self._process.kill)  # nobody may ask for the verdict
        assert self._process.stdin
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            json.dump(request, stdin, default=str)
        self._process.stdin = None

    def verdict(self) -> tuple[str, bool]:
        """Why the kernels are wrong, or "", and whether that is a verdict: whatever ended or stopped the process is
        one, unless the process itself gave up."""
        process = self._process
        try:
            why = process.communicate(timeout=LIMIT_S)[0].strip()
        except subprocess.TimeoutExpired:
            return f"no answer for {LIMIT_S:g} s", True
        finally:
            self.end()
            with self._stderr:
                self._stderr.seek(0)
                if words := self._stderr.read():
                    log.warning("the trial of the GPU's kernels said:\n%s", words)
        code = process.returncode
        status = signal.Signals(-code).name if code < 0 else f"status {code}"
        return why or (f"its process ended with {status}" if code else ""), code in (0, WRONG) or code < 0

    def end(self) -> None:
        self._process.kill()
        atexit.unregister(self._process.kill)
        with suppress(subprocess.TimeoutExpired):  # a GPU that hangs may hold on to it
            self._process.wait(GRACE_S)


_begun: dict[str, Trial] = {}
