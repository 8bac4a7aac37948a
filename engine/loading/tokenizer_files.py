"""The tokenizer in a model's folder."""

from pathlib import Path
from typing import Any

from .json_files import read_json

FILE = "tokenizer.json"


def read_tokenizer(folder: Path) -> Any:
    """The folder's tokenizer, which gives the token ids of its tokenizer.json if there is one.

    transformers' AutoTokenizer takes the vocabulary from that file and, for many of the classes that
    tokenizer_config.json may name, pre-tokenizer, normalizer and decoder from its own code: other ids for a model that
    borrowed the class. Here the file itself is loaded, with the chat template and added tokens of the other files.
    Special tokens such as BOS are the class's if no file has an EOS. Whether BOS and EOS are added is up to
    tokenizer.json, as in transformers 5: `add_bos_token` and `add_eos_token` count for folders without it.

    Code from the folder is never run. Raises whatever transformers raises."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    def by_class() -> Any:
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)

    if (folder / FILE).is_file():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
        for name, token in by_class().special_tokens_map.items() if tokenizer.eos_token is None else ():
            if name not in tokenizer.special_tokens_map and tokenizer.backend_tokenizer.token_to_id(token) is not None:
                setattr(tokenizer, name, token)
    else:
        tokenizer = by_class()
    if not tokenizer.chat_template and (template := folder / "chat_template.json").is_file():
        tokenizer.chat_template = read_json(template).get("chat_template")
    return tokenizer
