"""Options shared by several commands."""

import re

from ..core import spec
from ..core.values import Shape, one_of
from .arguments import Option, decimal, integer, model, not_empty, repeated, setting, switch, typed, whole

DTYPES = ("auto", "bfloat16", "float16", "float32")
MAX_THREADS = 64
_DEVICE = re.compile("auto|cpu|mps|cuda(:[0-9]{1,3})?")
FILE = Option("file", metavar="FILE", type=not_empty, help="a recording, as race --save writes it, or an exported page")
JSON = switch("--json", "print one JSON object on stdout and nothing else")
_FROM_FILE = "a file with the prompt, byte for byte after a BOM; - is stdin"
PROMPT = (
    repeated("--prompt TEXT", str, "the prompt, used byte for byte"),
    repeated("--prompt-file F", str, _FROM_FILE),
    switch("--chat", "apply the model's chat template"),
    switch("--no-thinking", "with --chat: no thinking before the answer (as the template puts it)"),
)  # read by `commands.read_prompt`
TARGET = setting(
    "--target T",
    model,
    "a hub repository, a local folder, or random:OWNER/NAME for random weights of a published shape (default: "
    "the bundled Gemma 3 270M)",
)
DTYPE = setting("--dtype D", typed(one_of(DTYPES)), f"{', '.join(DTYPES)} (default auto: measured)", "auto")
DEVICE = setting(
    "--device D",
    typed(Shape("one of auto, cpu, cuda, cuda:N, mps", lambda text: _DEVICE.fullmatch(text) is not None)),
    "auto, cpu, cuda, cuda:N or mps (default auto)",
    "auto",
)
TEMPERATURE = setting("--temperature X", typed(spec.TEMPERATURE, decimal), "0 is greedy (default 0)", 0.0)
TOP_P = setting("--top-p X", typed(spec.TOP_P, decimal), "sample within this mass; 1 is off (default 1)", 1.0)
SEED = setting("--seed N", typed(spec.SEED, whole), "decides all noise (default 0)", 0)
_LENGTH = "where every lane ends at the latest (default 128)"
LENGTH = setting("--max-new-tokens N", typed(spec.LENGTH, whole), _LENGTH, 128)
THREADS = setting(
    "--threads N",
    integer(1, MAX_THREADS),
    "CPU threads (default: torch's own choice, or one fewer where a busy machine makes that faster)",
)
MACHINE = (DTYPE, DEVICE, THREADS)


def set_threads(num_threads: int | None) -> None:
    """Fix the number of CPU threads before anything else uses torch."""
    if num_threads is not None:
        import torch

        torch.set_num_threads(num_threads)
