"""`random:OWNER/NAME`: a model of a published shape with random weights, to measure speed without the weights.

A step's time depends on a model's shape and not on its values; its text means nothing, and everything that names such a
model says so. The configurations are those published by the models' owners (`assets/configs/`); a folder with a
config.json, or such a file, works as well. Imports only the standard library."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError, in_a_line
from ..core.spec import RANDOM
from ..layers.published import quantised, refusal, text_part
from ..strict_json import parse
from .tokenizer_files import FILE, read_tokenizer
from .towers import decoder_config

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

LICENCE = "none: the weights are random, the text means nothing"
SEED = 0
CONFIGS = Path(__file__).resolve().parents[2] / "assets" / "configs"
BYTES = 256
MAX_CONFIG_BYTES = 4 * 1024**2
NOT_THE_SHAPE = ("quantization_config", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path")
# Token ids with a meaning only for trained weights. Without them a random model always writes up to the length limit.
ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def shipped() -> tuple[str, ...]:
    """The names of bundled shapes that can be raced; the page lists others with the reason why not."""
    names = sorted(path.stem.replace("--", "/", 1) for path in CONFIGS.glob("*--*.json"))
    return tuple(name for name in names if not refusal(config := shipped_config(name)) and not quantised(config))


def shipped_config(name: str) -> dict[str, Any]:
    """The bundled configuration of that name, or {}."""
    path = CONFIGS / f"{name.replace('/', '--', 1)}.json"
    return read_published(path) if path.is_file() else {}


def config_file(target: str) -> Path:
    """The configuration of `random:NAME`: NAME is one of `shipped()`, a folder with a config.json, or a JSON file.
    Raises UsageError."""
    name = target.removeprefix(RANDOM)
    if name in shipped():
        return CONFIGS / f"{name.replace('/', '--', 1)}.json"
    path = os.path.expanduser(name)
    path = os.path.join(path, "config.json") if os.path.isdir(path) else path
    if not os.path.isfile(path):
        raise UsageError(
            f"no shape for {target!r}; choose {RANDOM} and one of: {', '.join(shipped())}; or a folder with a "
            "config.json, or such a file"
        )
    return Path(path)


def read_published(path: Path) -> dict[str, Any]:
    """A configuration as published: an object. Raises UsageError."""
    try:
        value = parse(path.read_bytes(), MAX_CONFIG_BYTES, has_nan=True)
    except (OSError, UsageError) as error:
        raise UsageError(
            f"the configuration {str(path)!r} cannot be used: {getattr(error, 'strerror', None) or error}"
        ) from error
    if not isinstance(value, dict):
        raise UsageError(f"the configuration {str(path)!r} cannot be used: it is no JSON object")
    return value


def read_config(path: Path) -> dict[str, Any]:
    """The fields of a configuration that determine the shape, without precision, quantization and custom code. Raises
    UsageError."""
    value = read_published(path)
    if not isinstance(value.get("model_type"), str):
        raise UsageError(f"the configuration {str(path)!r} cannot be used: it names no model_type")
    return {key: item for key, item in value.items() if key not in NOT_THE_SHAPE}


def digest(path: Path) -> str:
    """A digest that identifies a random model, like one of weights for others: of the shape and the seed."""
    key = json.dumps({"config": read_config(path), "seed": SEED}, sort_keys=True)
    return f"random-{hashlib.sha256(key.encode()).hexdigest()}"


def build(path: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model: created without memory, then drawn on the device in its dtype with transformers' initialisation, so
    that it never takes more than its own size. The same weights every time on one kind of device; the caller's random
    numbers are not affected.

    Raises UsageError for anything but a causal language model of transformers."""
    import torch

    from ..kernels.choose import choose

    model = _without_memory(path, dtype)
    with choose(device).random_numbers_kept(), torch.no_grad():
        torch.manual_seed(SEED)
        model.to_empty(device=device)
        with torch.device(device):
            model.init_weights()
    return model.eval().requires_grad_(False)


def tokenizer(path: Path) -> Any:
    """The folder's own tokenizer; else one whose first ids are the bytes of UTF-8 and whose others are shown as
    numbers."""
    if any((path.parent / name).is_file() for name in (FILE, "tokenizer.model")):
        return read_tokenizer(path.parent)
    return bytes_tokenizer(text_part(read_config(path)).get("vocab_size", 0))


def bytes_tokenizer(num_words: int) -> Any:
    """A tokenizer with that many ids: one for each byte, and others that no text becomes, each shown as its number in
    brackets."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if num_words < BYTES:
        raise UsageError(
            f"a vocabulary of {num_words} words is too small for text: it takes {BYTES}, one for each byte"
        )
    others = (f"⟨{token_id}⟩" for token_id in range(BYTES, num_words))
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *others]
    made = Tokenizer(models.BPE(vocab={word: token_id for token_id, word in enumerate(words)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def _without_memory(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    raw = read_config(path)
    try:
        config = decoder_config(CONFIG_MAPPING[raw["model_type"]].from_dict(raw))
        for part in (config, config.get_text_config()):
            for name in ENDS:
                setattr(part, name, None)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=dtype)
    except Exception as error:  # a configuration may be wrong in any way
        raise UsageError(
            f"the configuration {str(path)!r} makes no causal language model: {in_a_line(error)}"
        ) from error
