"""Options shared by several commands."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

from ..spec import MAX_NEW_TOKENS, SMALLEST
from .arguments import integer, not_empty, number, one_of, option, shown, words

DTYPES = ("auto", "bfloat16", "float16", "float32", "int8")
MAX_THREADS = 64


def _device(text: str) -> str:
    if re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", text):
        return text
    raise ArgumentTypeError(f"must be one of auto, cpu, cuda, cuda:N, mps, not {shown(text)}")


FILE = option("file", metavar="FILE", type=not_empty, help="a recording, as race --save writes it")
JSON = option("--json", action="store_true", help="print one JSON object on stdout and nothing else")
PROMPT = (
    option("--prompt", metavar="TEXT", action="append", default=[], help="the prompt, used byte for byte"),
    option(
        "--prompt-file",
        metavar="F",
        action="append",
        default=[],
        help="a UTF-8 file with the prompt, used byte for byte; - is stdin",
    ),
    option("--chat", action="store_true", help="apply the model's chat template"),
)
"""Read by `commands.read_prompt`."""
TARGET = option(
    "--target",
    metavar="T",
    type=words,
    help="a hub repository, a local folder, or random:OWNER/NAME for random weights of a published shape (default: "
    "the bundled Gemma 3 270M)",
)
DTYPE = option(
    "--dtype",
    metavar="D",
    type=one_of(DTYPES),
    default="auto",
    help=f"{', '.join(DTYPES)} (default auto: measured; int8: weights in 8 bits, on a CPU)",
)
DEVICE = option(
    "--device", metavar="D", type=_device, default="auto", help="auto, cpu, cuda, cuda:N or mps (default auto)"
)
TEMPERATURE = option("--temperature", metavar="X", type=number(0, 100), default=0.0, help="0 is greedy (default 0)")
TOP_P = option(
    "--top-p",
    metavar="X",
    type=number(SMALLEST, 1, "above 0 and at most 1"),
    default=1.0,
    help="sample within this mass; 1 is off (default 1)",
)
SEED = option("--seed", metavar="N", type=integer(0, 2**63 - 1), default=0, help="decides all noise (default 0)")
LENGTH = option(
    "--max-new-tokens",
    metavar="N",
    type=integer(1, MAX_NEW_TOKENS),
    default=128,
    help="where every lane ends at the latest (default 128)",
)
THREADS = option(
    "--threads",
    metavar="N",
    type=integer(1, MAX_THREADS),
    help="CPU threads (default: torch's own choice, or one fewer where a busy machine makes that faster)",
)


def set_threads(num_threads: int | None) -> None:
    """Fix the number of CPU threads before anything else uses torch."""
    if num_threads is not None:
        import torch

        torch.set_num_threads(num_threads)
