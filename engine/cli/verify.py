"""The command verify: a recorded race, run again."""

import os
from argparse import Namespace

from ..core.errors import RaceError, UsageError
from ..core.events import Prompt
from ..recordings import recording as recordings
from ..recordings.compare import compare
from ..recordings.words import clean
from ..text import check_prompt_text
from .arguments import Command, Option
from .options import DEVICE, FILE, JSON, TARGET, set_threads
from .output import console, print_json
from .run import run, set_up


def _verify(options: Namespace) -> int:
    recorded = recordings.read(options.file)
    if recorded.on_servers:
        raise UsageError("this is a race of servers: they cannot be run again here, so nothing can be verified")
    given = recorded["prompt"]
    prompt = Prompt(given["text"], tuple(given["token_ids"]), given.get("chat", False))
    check_prompt_text(prompt.text)
    on_cpu, threads = recorded["device"]["type"] == "cpu", recorded["device"]["threads"] or 0
    if on_cpu and threads:
        set_threads(min(threads, os.cpu_count() or 1))
    device = "cpu" if on_cpu and options.device == "auto" else options.device
    target = options.target or recorded["model"]["name"]
    model = Namespace(target=target, dtype=recorded["model"]["dtype"], device=device, threads=threads)
    here = run(lambda progress: set_up(model, recorded.spec, lambda tokenizer: prompt, progress))
    result = compare(recorded, here)
    if options.json:
        print_json(result)
    else:
        from rich.text import Text

        out = console()
        if result["same_tokens"]:
            out.print(Text(clean(result["sentence"]), "bold"))
        for words in (
            *(caution["sentence"] for caution in recorded["cautions"] if caution["kind"] == "times"),
            *result["differences"],
        ):
            out.print(Text(clean(words)))
    if not result["same_tokens"]:
        raise RaceError(result["sentence"])
    return 0


_RECORDED = "where the recorded model is on this machine (default: where it was)"
VERIFY = Command(
    (FILE, Option(*TARGET.names, **{**TARGET.details, "help": _RECORDED}), DEVICE, JSON),
    _verify,
    "Both races' speed-ups are stated side by side: that tokens are the same proves no time. A recording made on a CPU "
    "runs again with as many threads, as far as this machine has them. "
    "Exit status: 0 the same tokens; 1 other tokens, or a lane failed; 2 the file or the model cannot be used; 130 "
    "interrupted.",
)
