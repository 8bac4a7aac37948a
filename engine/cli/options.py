"""Options shared by several commands."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

from ..core.spec import MAX_NEW_TOKENS, SMALLEST
from .arguments import integer, not_empty, number, one_of, option, setting, shown, switch, words

DTYPES = ("auto", "bfloat16", "float16", "float32", "int8")
MAX_THREADS = 64


def _device(text: str) -> str:
    if re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", text):
        return text
    raise ArgumentTypeError(f"must be one of auto, cpu, cuda, cuda:N, mps, not {shown(text)}")


FILE = option("file", metavar="FILE", type=not_empty, help="a recording, as race --save writes it")
JSON = switch("--json", "print one JSON object on stdout and nothing else")
PROMPT = (
    setting("--prompt TEXT", str, "the prompt, used byte for byte", [], action="append"),
    setting(
        "--prompt-file F", str, "a UTF-8 file with the prompt, used byte for byte; - is stdin", [], action="append"
    ),
    switch("--chat", "apply the model's chat template"),
)  # read by `commands.read_prompt`
TARGET = setting(
    "--target T",
    words,
    "a hub repository, a local folder, or random:OWNER/NAME for random weights of a published shape (default: "
    "the bundled Gemma 3 270M)",
)
DTYPE = setting(
    "--dtype D",
    one_of(DTYPES),
    f"{', '.join(DTYPES)} (default auto: measured; int8: weights in 8 bits, on a CPU)",
    "auto",
)
DEVICE = setting("--device D", _device, "auto, cpu, cuda, cuda:N or mps (default auto)", "auto")
TEMPERATURE = setting("--temperature X", number(0, 100), "0 is greedy (default 0)", 0.0)
TOP_P = setting(
    "--top-p X", number(SMALLEST, 1, "above 0 and at most 1"), "sample within this mass; 1 is off (default 1)", 1.0
)
SEED = setting("--seed N", integer(0, 2**63 - 1), "decides all noise (default 0)", 0)
LENGTH = setting(
    "--max-new-tokens N", integer(1, MAX_NEW_TOKENS), "where every lane ends at the latest (default 128)", 128
)
THREADS = setting(
    "--threads N",
    integer(1, MAX_THREADS),
    "CPU threads (default: torch's own choice, or one fewer where a busy machine makes that faster)",
)


def set_threads(num_threads: int | None) -> None:
    """Fix the number of CPU threads before anything else uses torch."""
    if num_threads is not None:
        import torch

        torch.set_num_threads(num_threads)
