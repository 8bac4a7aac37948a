"""Composite models, of text and images or sound, as text models: their decoder alone, of a causal type."""

from typing import Any

from ..layers.published import causal_type

# From the names of weights in a composite's checkpoint to those of its decoder alone, applied one after the other. All
# that is no text gets a prefix, so that what the decoder should have and does not is noticed.
OTHER = "not_text."
TEXT_NAMES = {
    r"^(?:model\.)?(?:language_model|text_model)\.(?:model\.)?": "text.",
    r"^model\.(?=(?:embed_tokens|layers|norm)\.)": "text.",
    r"^(?!lm_head\.|text\.)": OTHER,
    r"^text\.(?=lm_head\.)": "",
    r"^text\.": "model.",
}


def decoder_config(config: Any) -> Any:
    """transformers' configuration to load a model's decoder with: its own, unless it is a composite."""
    from transformers import CONFIG_MAPPING

    if not (kind := causal_type(config.to_dict())):
        return config
    fields = config.get_text_config().to_dict()
    for name in ("tie_word_embeddings", "eos_token_id"):  # the composite's, where it states them
        if (value := getattr(config, name, None)) is not None:
            fields[name] = value
    return CONFIG_MAPPING[kind].from_dict({**fields, "model_type": kind})
