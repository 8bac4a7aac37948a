"""Reading a published draft head: its configuration and tensors, whatever their format, as one `HeadSpec` and one set
of names.

Formats, told apart by config.json:
  speculators   `speculators_model_type` eagle3 or dflash (RedHatAI; vllm-project/speculators); aux ids index
  transformers' `hidden_states` z-lab         `dflash_config` or the architecture DFlashDraftModel (the DFlash authors,
  SpecForge); `target_layer_ids` are layer outputs: index = id + 1 original      an Eagle3 architecture, or
  LlamaForCausalLM with a `draft_vocab_size`: EAGLE-3 as its authors, SpecForge and NVIDIA's ModelOpt write it;
                `midlayer.` is `layers.0.`; ids in `eagle_config` are layer outputs, those beside it indices, as vLLM
                reads both
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError
from ..models.random_targets import read_published
from ..models.sources import weights_files
from .compact import restored
from .fields import DFLASH_CONFIG, EAGLE_CONFIG, SPECULATORS, check_fields, layers_config

KINDS = ("eagle3", "dflash")
DFLASH = "DFlashDraftModel"


@dataclass(frozen=True)
class HeadSpec:
    """What a head is. `layers`: a transformers configuration of its decoder layers. `hidden_layers`: the target's
    hidden states it reads, as indices into transformers' `hidden_states` (0: embeddings). `draft_vocab_size`,
    `vocab_size`: its own and its target's, None where not stated.

    `windows` per layer: how far back it sees, None (or no entry) for all. EAGLE-3 and z-lab count from the row,
    speculators' DFlash from the block's start (`window_from_block`). For DFlash, `causal` per layer: whether a row of
    the block sees only those before it. What it embeds is scaled by `embedding_scale`, its logits by `logit_scale`,
    then capped at `softcap`, as z-lab's heads for Gemma ask for. `tied_output`: a head without output rows takes those
    of its words from the target's embedding."""

    kind: str
    layers: Any
    hidden_layers: tuple[int, ...]
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    block_size: int = 0
    mask_token_id: int = 0
    sample_from_anchor: bool = False
    causal: tuple[bool, ...] = ()
    windows: tuple[int | None, ...] = ()
    window_from_block: bool = False
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    softcap: float | None = None
    draft_vocab_size: int | None = None
    vocab_size: int | None = None
    tied_output: bool = False


def read_spec(
    folder: Path, kind: str, num_target_layers: int, aux: tuple[int, ...] = (), causal: bool | None = None
) -> HeadSpec:
    """The head's configuration. aux: overrides which hidden states it reads. causal: overrides the mask inside a DFlash
    block.

    Raises UsageError where the folder holds no head of that kind, or what it says makes no sense."""
    return spec_of(read_published(folder / "config.json"), str(folder), kind, num_target_layers, aux, causal)


def spec_of(
    config: Mapping[str, Any],
    name: str,
    kind: str,
    num_target_layers: int,
    aux: tuple[int, ...] = (),
    causal: bool | None = None,
) -> HeadSpec:
    """`read_spec` of what the config.json of the head `name` holds: its weights need not be there."""
    try:
        spec = _spec(config, num_target_layers, aux, causal)
    except UsageError:
        raise
    except Exception as error:  # a configuration comes from anywhere and can be wrong in any way
        raise UsageError(
            f"the head's config.json in {name!r} is not understood: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}"
        ) from error
    if spec.kind != kind:
        raise UsageError(f"the head in {name!r} is of kind {spec.kind}; ask for it as {spec.kind}:..., not {kind}:...")
    if bad := [i for i in spec.hidden_layers if not 0 <= i <= num_target_layers]:
        raise UsageError(
            f"the head reads hidden state {bad[0]} of its target, which has 0 to {num_target_layers}; give other "
            "indices after #aux="
        )
    return spec


def _spec(config: Mapping[str, Any], num_target_layers: int, aux: tuple[int, ...], causal: bool | None) -> HeadSpec:
    default = (2, num_target_layers // 2, num_target_layers - 3)
    names = list(config.get("architectures") or ())
    if config.get("speculators_model_type") is not None:
        return _speculators(config, default, aux, causal)
    if "dflash_config" in config or any("DFlash" in name for name in names):
        if names and DFLASH not in names:
            raise UsageError(
                f"a head of architecture {names[0]} is not supported; of its kin this engine does {DFLASH}"
            )
        return _zlab(config, num_target_layers, aux, causal)
    if not any("agle3" in name for name in names) and not (
        "draft_vocab_size" in config and names in ([], ["LlamaForCausalLM"])
    ):
        raise UsageError(
            "this config.json describes no draft head that this engine knows: neither speculators_model_type, nor "
            "dflash_config, nor an Eagle3 architecture"
        )
    own = config.get("eagle_config") or {}
    check_fields("eagle_config", own, EAGLE_CONFIG)
    ids = (
        _integers(config.get("eagle_aux_hidden_state_layer_ids"))
        or tuple(i + 1 for i in _integers(own.get("eagle_aux_hidden_state_layer_ids")))
        or default
    )
    layers = (
        {**config, "model_type": "llama"} if any("Llama" in name for name in names) else config
    )  # the architecture says what its layers are
    return _eagle3(
        layers, {**config, **({"norm_before_fc": own["norm_before_fc"]} if "norm_before_fc" in own else {})}, aux or ids
    )


def _speculators(
    config: Mapping[str, Any], default: tuple[int, ...], aux: tuple[int, ...], causal: bool | None
) -> HeadSpec:
    from transformers import PretrainedConfig

    kind = config["speculators_model_type"]
    if kind not in KINDS:
        raise UsageError(f"a speculators head of type {kind!r} is not supported; choose one of: {', '.join(KINDS)}")
    check_fields(
        "config.json",
        {name: value for name, value in config.items() if name not in PretrainedConfig().to_dict()},
        SPECULATORS,
    )
    ids = (
        aux
        or _integers(config.get("eagle_aux_hidden_state_layer_ids"))
        or _integers(config.get("aux_hidden_state_layer_ids"))
        or default
    )
    layers = config["transformer_layer_config"]
    if kind == "eagle3":
        return _eagle3(layers, config, ids)
    non_causal = bool(config.get("sliding_window_non_causal"))
    return _dflash(
        layers,
        config,
        ids,
        causal,
        non_causal,
        block_size=config["block_size"],
        window_from_block=True,
        sample_from_anchor=bool(config.get("sample_from_anchor")),
    )


def _zlab(config: Mapping[str, Any], num_target_layers: int, aux: tuple[int, ...], causal: bool | None) -> HeadSpec:
    own = config.get("dflash_config") or {}
    check_fields("dflash_config", own, DFLASH_CONFIG)
    values = {**config, **own}
    ids = _integers(values.get("target_layer_ids")) or _spread(num_target_layers, config["num_hidden_layers"])
    if causal is None:
        causal = config.get("is_causal")
    return _dflash(
        config,
        values,
        aux or tuple(i + 1 for i in ids),
        own.get("causal") if causal is None else causal,
        block_size=values.get("block_size", 16),
        embedding_scale=float(values.get("input_embedding_scale") or 1),
        logit_scale=float(values.get("output_multiplier") or 1),
        softcap=float(values.get("final_logit_softcapping") or 0) or None,
    )


def _eagle3(layers: Mapping[str, Any], flags: Mapping[str, Any], ids: tuple[int, ...]) -> HeadSpec:
    config = layers_config(layers, "eagle3")
    given: Any = {
        name: bool(flags.get(name)) for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    }
    return HeadSpec(
        "eagle3",
        config,
        ids,
        **given,
        windows=_windows(config),
        draft_vocab_size=flags.get("draft_vocab_size"),
        vocab_size=layers.get("vocab_size"),
        tied_output=flags.get("tie_word_embeddings") is True,
    )


def _dflash(
    layers: Mapping[str, Any],
    values: Mapping[str, Any],
    ids: tuple[int, ...],
    causal: bool | None,
    sliding_non_causal: bool = False,
    **more: Any,
) -> HeadSpec:
    """Full-attention layers are bidirectional inside the block, sliding ones causal, unless the configuration (or the
    caller) says otherwise."""
    config = layers_config(layers, "dflash")
    windows, mask = _windows(config), values.get("mask_token_id")
    for name, value in (("mask_token_id", mask), ("block_size", more["block_size"])):
        if type(value) is not int:
            raise UsageError(f"the head's {name} is {value!r}; it must be a whole number")
    within = tuple(
        bool(causal) if causal is not None else window is not None and not sliding_non_causal for window in windows
    )
    sizes: Any = {
        "draft_vocab_size": values.get("draft_vocab_size"),
        "vocab_size": layers.get("vocab_size"),
        "tied_output": values.get("tie_word_embeddings") is True,
    }
    return HeadSpec(
        "dflash", config, ids, mask_token_id=int(mask or 0), causal=within, windows=windows, **more, **sizes
    )


def _windows(config: Any) -> tuple[int | None, ...]:
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return tuple(config.sliding_window if kind == "sliding_attention" else None for kind in kinds)


def _spread(num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    """Layers read by a z-lab head that names none: one in the middle, or evenly from the second to the fourth from the
    end."""
    if num_layers == 1:
        return (num_target_layers // 2,)
    return tuple(round(1 + i * (num_target_layers - 4) / (num_layers - 1)) for i in range(num_layers))


def _integers(values: Any) -> tuple[int, ...]:
    values = tuple(values or ())
    if any(type(i) is not int for i in values):
        raise UsageError(f"the head's layer ids {list(values)} are not whole numbers")
    return values


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The head's tensors under the names of the speculators format. Pickles are read as tensors alone. Raises
    UsageError."""
    tensors: dict[str, Tensor] = {}
    for path in weights_files(folder):
        try:
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                read = load_file(path)
            else:
                read = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise UsageError(f"{str(path)!r} is damaged or holds more than tensors; it is not loaded") from error
        except Exception as error:  # a head's files come from anywhere and can be wrong in any way
            raise UsageError(
                f"cannot read the head's weights in {str(path)!r}: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:200]}"
            ) from error
        if not isinstance(read, dict) or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in read.items()
        ):
            raise UsageError(f"{str(path)!r} holds more than named tensors; it is not loaded")
        tensors.update(read)
    return restored({name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()})
