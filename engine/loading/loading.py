"""Loads weights and tokenizer, once; all lanes share them."""

from __future__ import annotations

import gc
import hashlib
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.errors import PhotofinishError, RaceError, UsageError, choices, in_a_line, is_out_of_memory
from ..kernels.choose import choose
from ..kernels.devices import device_named
from ..layers import published
from ..progress import Progress, quiet, silent
from . import default_model, random_targets
from .json_files import check_json
from .sources import DEFAULT_TARGET, Source, config_of, find, hub_names, weights_files
from .tokenizer_files import read_tokenizer
from .towers import OTHER, TEXT_NAMES, decoder_config
from .unpack import is_scaled, unpacked

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..runner.prepared import Prepared

__all__ = ["DEFAULT_TARGET", "DTYPES", "LoadedModel", "ModelInfo", "give_back_memory", "load"]

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
REASONS = {
    "backend tokenizer": "it has no tokenizer that is readable here",
    "trust_remote_code": published.OWN_CODE,
    "docstring": "transformers needs its docstrings, and this Python leaves them out; run it without -OO",
}  # a word of an error while loading -> in our words


@dataclass(frozen=True)
class ModelInfo:
    """A model's identity, for the record.

    name: as given to `load`.
    revision: the hub's commit, or "".
    digest: sha256 of the weights file; of several files, sha256 of the lines `<sha256>  <name>\\n` that `sha256sum`
        prints for them, sorted by name. For random weights `random-` and the sha256 of their definition.
    licence: a short string.
    """

    name: str
    revision: str
    digest: str
    dtype: str
    device: str
    licence: str

    def about(self) -> dict[str, str]:
        """All of it except the device, for a recording."""
        return {key: value for key, value in asdict(self).items() if key != "device"}


@dataclass(frozen=True)
class LoadedModel:
    """A causal LM ready for inference (eval mode, no gradients), its tokenizer, and its identity."""

    model: PreTrainedModel
    tokenizer: Any
    info: ModelInfo

    _attached: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def prepared(self) -> Prepared:
        """The model prepared for fixed steps, in place, on first use. Raises UnsupportedModel, or RaceError if memory
        runs out."""
        return self.make_ready()

    def make_ready(self, progress: Progress = silent) -> Prepared:
        """`prepared`, with progress."""
        from ..runner.prepare import prepare

        return self.attached("prepared", lambda: prepare(self.model, progress=progress))

    def step_down(self, why: str) -> bool:
        """Run this model and those of its drafters one rung down from now on, because of `why` (see `Kernels.lower`).
        Nothing that was set up over `prepared` before may be used any more. Returns False if this one is on the lowest
        rung; raises RaceError if the device is lost."""
        from ..runner.prepare import lowered

        for companion in self._attached.values():
            if isinstance(companion, LoadedModel):
                companion.step_down(why)
        if (lower := lowered(self.prepared, why)) is None:
            return False
        self._attached["prepared"] = lower
        return True

    def attached(self, key: Any, make: Callable[[], Any]) -> Any:
        """The result of the first `make()` under that key: something that belongs to this model and serves every
        race."""
        if key not in self._attached:
            self._attached[key] = make()
        return self._attached[key]

    def let_go(self, key: Any) -> None:
        """Forget what is `attached` under that key, if anything; races that use it keep it."""
        self._attached.pop(key, None)

    def companion(self, name: str, progress: Progress = silent) -> LoadedModel:
        """Another model on the same device in the dtype this one computes in, loaded once; this model itself for its
        own name."""
        if name == self.info.name:
            return self
        return self.attached(
            ("companion", name),
            lambda: load(name, str(self.model.dtype).removeprefix("torch."), self.info.device, progress),
        )


def load(
    target: str = DEFAULT_TARGET, dtype: str = "auto", device: str = "auto", progress: Progress = silent
) -> LoadedModel:
    """Load a model and its tokenizer. Code from a repository is never run.

    target: DEFAULT_TARGET, a folder, a hub repository `owner/name[@revision]`, or `random:NAME` (random weights of a
        published shape, see `random_targets`).
    dtype: "auto" is the fastest here.
    device: "auto" is CUDA if available, else the CPU.
    progress: called with what takes long, and how much of it is done.

    Raises UsageError for an unknown or unusable target, dtype or device, RaceError if memory or the cache's disk is too
    small: before weights are downloaded, as far as config.json shows it."""
    target, place = hub_names(target), device_named(device)
    if dtype not in ("auto", *DTYPES):
        raise choices("dtype", dtype, ("auto", *DTYPES))
    kernels = choose(place)

    @cache
    def chosen() -> str:
        """The dtype for "auto". On a CPU it takes a compiler or a measurement to know."""
        kernels.get_ready(progress)
        return kernels.best_dtype() if dtype == "auto" else dtype

    if target != DEFAULT_TARGET:
        config = config_of(target, progress)
        if says := published.unpacking(config):
            progress(f"{target} has {says}", None)
        _explained(target, _accept, target, config, chosen, place, kernels.free_bytes())
    source = find(target, progress)
    files = [] if source.config else weights_files(source.folder)
    if files and target != DEFAULT_TARGET:
        check_json(source.folder)
    dtype = chosen()
    with ThreadPoolExecutor(1) as pool:
        digest = None if source.digest else pool.submit(_digest, files)
        with quiet():
            progress(f"reading the tokenizer of {target}", None)
            tokenizer = _explained(target, _tokenizer, source)
            progress(f"{'drawing' if source.config else 'reading'} the weights of {target}", None)
            model = _explained(target, _model, source, files, DTYPES[dtype], place)
        info = ModelInfo(
            target, source.revision, digest.result() if digest else source.digest, dtype, str(place), source.licence
        )
    return LoadedModel(model, tokenizer, info)


def _accept(target: str, config: dict[str, Any], chosen: Callable[[], str], device: torch.device, free: int) -> None:
    """chosen: returns the dtype. free: the device's free bytes."""
    if why := published.refusal(config) or published.quantised(config):
        raise UsageError(f"cannot load the model {target!r}: it {why}")
    dtype = chosen()
    if (num_bytes := published.num_parameters(config) * DTYPES[dtype].itemsize) > free:
        raise RaceError(
            f"the weights of {target!r} take {num_bytes / 1e9:.1f} GB in {dtype}, and {device} has {free / 1e9:.1f} GB "
            "free; choose a smaller model"
        )


def give_back_memory(device: str = "auto") -> None:
    """Free what only reference cycles still hold, and return torch's unused memory to the device. Call it between
    dropping one model and loading the next."""
    gc.collect()
    choose(device_named(device)).give_back_memory()


def _tokenizer(source: Source) -> Any:
    if source.config:
        return random_targets.tokenizer(source.config)
    if source.name == DEFAULT_TARGET:
        return default_model.load_tokenizer(source.folder)
    tokenizer = read_tokenizer(source.folder)
    # an empty one is made from config.json alone
    if set(tokenizer("a", add_special_tokens=False)["input_ids"]) <= set(tokenizer.all_special_ids):
        raise UsageError(f"cannot load the model {source.name!r}: it has no tokenizer")
    return tokenizer


def _model(source: Source, files: list[Path], dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    if source.config:
        return random_targets.build(source.config, dtype, device)
    from transformers import AutoConfig, AutoModelForCausalLM

    from ..runner.kernel_trial import begin

    config = AutoConfig.from_pretrained(str(source.folder), trust_remote_code=False, local_files_only=True)
    is_tower = (decoder := decoder_config(config)) is not config
    options: dict[str, Any] = {
        "config": decoder,
        "key_mapping": TEXT_NAMES if is_tower else None,
        "dtype": dtype,
        "device_map": None if choose(device).on_host else {"": device},  # weights are read directly to it
        "trust_remote_code": False,
        "local_files_only": True,
        "weights_only": True,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # they are reported below
    }
    begin(decoder, dtype, device)
    published_config = random_targets.read_published(source.folder / "config.json")
    if not published_config.get("quantization_config") and is_scaled(files):  # said elsewhere: ModelOpt until 2025
        published_config["quantization_config"] = {"quant_method": "fp8"}
    if published.stored_bits(published_config):
        model, report = _unpacked(files, published_config["quantization_config"], options)
    else:
        model, report = AutoModelForCausalLM.from_pretrained(str(source.folder), **options)
    own, others = model.state_dict().keys(), sorted(report["unexpected_keys"])
    shapes = [f"{name}, {list(one)} instead of {list(other)}" for name, one, other in sorted(report["mismatched_keys"])]
    faults = {
        # a number that belongs to a parameter, such as weight_scale: what loads without it is another model
        "quantised, which config.json does not say": [key for key in others if key.rpartition("_")[0] in own],
        "of another shape": shapes,
        "missing": sorted(report["missing_keys"]),
        "too many": [key for key in others if is_tower and not key.startswith(OTHER)],
    }
    for what, names in faults.items():
        if names:
            there = f"; there is {others[0]}" if what == "missing" and others else ""
            raise UsageError(
                f"the weights of {source.name!r} are not those of a {type(model).__name__}: {len(names)} parameters "
                f"are {what}, such as {names[0]}{there}"
            )
    model.unpacked = published.unpacking(published_config)  # for the record
    return model.eval().requires_grad_(False)


def _unpacked(files: list[Path], quantization: dict[str, Any], options: dict[str, Any]) -> Any:
    """What from_pretrained returns for the model in these files, of whose weights some are to be unpacked."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, GenerationConfig

    config = options["config"]
    vars(config).pop("quantization_config", None)
    if (folder := files[0].parent).joinpath("generation_config.json").is_file():
        options["generation_config"] = GenerationConfig.from_pretrained(folder, local_files_only=True)
    weights = unpacked(files, quantization, options["dtype"])
    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].from_pretrained(None, state_dict=weights, **options)


def _explained(target: str, call, *arguments):
    """Call a loader; whatever it raises becomes the cause of an error with one clear sentence."""
    try:
        return call(*arguments)
    except PhotofinishError:
        raise
    except ImportError as error:
        raise UsageError(f"the model {target!r} needs a package that is not installed: {in_a_line(error)}") from error
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"the model {target!r} has pickled weights that are damaged or hold more than tensors; they are not loaded"
        ) from error
    except Exception as error:  # a model's files may be wrong in any way
        if is_out_of_memory(error):
            raise RaceError(
                f"not enough memory for the model {target!r}; choose a smaller one, or dtype bfloat16"
            ) from error
        why = next((why for word, why in REASONS.items() if word in repr(error)), in_a_line(error))
        raise UsageError(f"cannot load the model {target!r}: {why}") from error


def _digest(files: list[Path]) -> str:
    """See ModelInfo.digest. hashlib releases Python's lock."""
    sums = {}
    for path in files:
        with path.open("rb") as file:
            sums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    if len(sums) == 1:
        return next(iter(sums.values()))
    return hashlib.sha256("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode()).hexdigest()
