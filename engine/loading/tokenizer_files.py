"""The tokenizer in a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "tokenizer.json"


def read_tokenizer(folder: Path) -> Any:
    """The folder's tokenizer, which gives the token ids of its tokenizer.json if there is one.

    transformers takes the vocabulary from that file, but for many classes (tokenizer_config.json names one) the
    pre-tokenizer, normalizer and decoder from its own code, which differ from those of models that borrowed the class.
    Here the file itself is loaded then, with the chat template and added tokens of the other files, and with BOS, EOS
    and the like of the class where no file states them. Whether BOS and EOS are added is up to tokenizer.json, as in
    transformers 5: `add_bos_token` and `add_eos_token` of tokenizer_config.json count for folders without it.

    Code from the folder is never run. Raises whatever transformers raises."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    where: dict[str, Any] = {"pretrained_model_name_or_path": str(folder), "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(**where, trust_remote_code=False)
    if (folder / FILE).is_file() and type(tokenizer) is not PreTrainedTokenizerFast:
        rebuilt, tokenizer = tokenizer, PreTrainedTokenizerFast.from_pretrained(**where)
        for name, token in rebuilt.special_tokens_map.items():
            if name not in tokenizer.special_tokens_map and tokenizer.backend_tokenizer.token_to_id(token) is not None:
                setattr(tokenizer, name, token)
    if not tokenizer.chat_template and (template := folder / "chat_template.json").is_file():
        tokenizer.chat_template = json.loads(template.read_bytes()).get("chat_template")
    return tokenizer
