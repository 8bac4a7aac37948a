"""Finds out whether each part of a device's kernels is right, once for a machine and a model's shapes, in a
separate process (`trial_process.py`): an illegal access or a hang then ends that process and not this one. A process
that dies or hangs is restarted without the part it was trying. The verdict is cached.

The process reads a JSON object (`_request`, and "off": parts to leave out) and writes one per line: {"trying": what},
{"off": part, "why": text}, {"gave_up": text}, {"done": true}."""

from __future__ import annotations

import hashlib
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import Any

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
START = "starting"
# After so long without a line the process is given up. Importing torch from a cloud's disk may take minutes; a part has
# some ten kernels to compile, a second or two each.
START_S, PART_S = 180.0, 90.0
GRACE_S = 10.0  # for the process to end in
LEAST_LAYERS = 2  # a decoder's first layer is entered differently from those after it
NOT_THE_SHAPE = {"_name_or_path", "architectures", "dtype", "quantization_config", "transformers_version"}


def tried(model: PreTrainedModel, kernels: Kernels, progress: Progress = silent) -> dict[str, str]:
    """The parts of `kernels` to leave out, each with the reason. The model is fused, without any of them. Takes about a
    minute unless cached. If the trial itself fails, all are left out, and the next load tries again."""
    parts, name = kernels.parts(model), _name(model)
    if (off := _recalled(name, parts)) is not None:
        return off
    off, request = {}, _request(model, parts)
    kernels.give_back_memory()
    while True:
        at, gave_up, ended, num_off = START, "", "", len(off)
        for line in chain([{"trying": START}], _lines({**request, "off": off})):
            match line:
                case {"trying": str(at)}:
                    progress(f"trying the GPU's kernels, once for this machine and model: {at}", None)
                case {"off": str(part), "why": str(why)}:
                    off[part] = why
                case {"gave_up": str(gave_up)}:
                    pass
                case {"ended": str(ended)}:
                    pass
                case {"done": True}:
                    write_json(name, {"off": off})
                    return off
        if at in parts and at not in off and not gave_up:
            off[at] = ended
        if len(off) == num_off:  # another process would end the same way
            return {part: off.get(part, f"it could not be tried: {gave_up or ended}") for part in parts}


def condemn(model: PreTrainedModel, why: str) -> None:
    """Remember that all parts are to be left out for this model, from which the kernels have been removed."""
    weight = next(model.parameters())
    write_json(_name(model), {"off": dict.fromkeys(choose(weight.device, weight.dtype).parts(model), why)})


def _recalled(name: str, parts: tuple[str, ...]) -> dict[str, str] | None:
    off = (read_json(name) or {}).get("off")
    is_sound = isinstance(off, dict) and off.keys() <= set(parts) and all(isinstance(why, str) for why in off.values())
    return off if is_sound else None


def _name(model: PreTrainedModel) -> str:
    """The name of the verdict's file, from everything it may depend on. The model has no kernels."""
    weight = next(model.parameters())
    about = {
        "request": _request(model, ()),
        "identity": choose(weight.device, weight.dtype).identity(model),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "source": hashlib.sha256(PROCESS.read_bytes()).hexdigest(),
    }
    return f"trial-{hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]}.json"


def _request(model: PreTrainedModel, parts: tuple[str, ...]) -> dict[str, Any]:
    weight = next(model.parameters())
    return {
        "config": _with_few_layers(model.config),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": str(weight.device),
        "parts": parts,
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


def _lines(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The process's lines and, when it has ended, {"ended": how}. What it says on stderr is logged."""
    pipe, limit_s, said = subprocess.PIPE, START_S, TemporaryFile("w+")  # noqa: SIM115  closed below
    try:
        process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=said, text=True, cwd=ROOT)
    except OSError as error:
        yield {"ended": in_a_line(error)}
        return
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(OSError), process.stdin:
            process.stdin.write(json.dumps(request, default=str))
        while True:
            timer, started = Timer(limit_s, process.kill), time.monotonic()
            timer.start()
            line = process.stdout.readline()
            timer.cancel()
            if not line.endswith("\n"):
                break
            yield json.loads(line)
            limit_s = PART_S
        is_late = time.monotonic() - started >= limit_s
        _wait(process)
        yield {"ended": f"no answer for {limit_s:g} s" if is_late else f"its process ended with {_status(process)}"}
    finally:
        process.kill()
        process.stdout.close()
        _wait(process)
        with said:
            said.seek(0)
            if words := said.read():
                log.warning("the trial of the GPU's kernels said:\n%s", words)


def _wait(process: subprocess.Popen[str]) -> None:
    with suppress(subprocess.TimeoutExpired):  # a GPU that hangs may hold on to it
        process.wait(GRACE_S)


def _status(process: subprocess.Popen[str]) -> str:
    code = process.returncode
    return signal.Signals(-code).name if code is not None and code < 0 else f"status {code}"
