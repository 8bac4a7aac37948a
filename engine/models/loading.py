"""Weights and tokenizer into memory, once; every lane shares them."""

from __future__ import annotations

import gc
import hashlib
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import PhotofinishError, RaceError, UsageError, choices, in_a_line
from ..kernels.choose import choose
from ..kernels.devices import device_named
from ..model import published
from ..progress import Progress, silent
from ..quiet import quiet
from . import default_model, random_targets
from .sources import DEFAULT_TARGET, Source, find, weights_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..target.prepared import Prepared

__all__ = ["DEFAULT_TARGET", "DTYPES", "LoadedModel", "ModelInfo", "give_back_memory", "load"]

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
INT8, COMPUTE_DTYPE = "int8", "bfloat16"
"""Weights of linears in 8 bits, and everything else in that dtype."""


@dataclass(frozen=True)
class ModelInfo:
    """What a model is, for the record. name: as asked for. revision: the hub's commit, or "". licence: a short string.

    digest: sha256 of the weights file; of several files, sha256 of the lines `<sha256>  <name>\\n` that `sha256sum`
    prints for them, sorted by name. Of random weights `random-` and the sha256 of what they are made from.
    """

    name: str
    revision: str
    digest: str
    dtype: str
    device: str
    licence: str

    def about(self) -> dict[str, str]:
        """What a recording says of it: everything but where it lies."""
        return {key: value for key, value in asdict(self).items() if key != "device"}


@dataclass(frozen=True)
class LoadedModel:
    """A causal LM ready for inference (eval mode, no gradients), its tokenizer, and what it is."""

    model: PreTrainedModel
    tokenizer: Any
    info: ModelInfo

    _attached: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def prepared(self) -> Prepared:
        """The model made ready for fixed steps, in place, when first asked for. Raises UnsupportedModel."""
        return self.make_ready()

    def make_ready(self, progress: Progress = silent) -> Prepared:
        """`prepared`, telling what takes long the first time."""
        from ..target.prepare import prepare

        return self.attached("prepared", lambda: prepare(self.model, int8=self.info.dtype == INT8, progress=progress))

    def attached(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make()` returned when first asked for under that key: something that belongs to this model and serves
        every race."""
        if key not in self._attached:
            self._attached[key] = make()
        return self._attached[key]

    def companion(self, name: str, progress: Progress = silent) -> LoadedModel:
        """Another model on the same device in the dtype this one computes in, loaded once however many races ask for
        it; this one, if it is its own name."""
        if name == self.info.name:
            return self
        return self.attached(
            ("companion", name),
            lambda: load(name, str(self.model.dtype).removeprefix("torch."), self.info.device, progress),
        )


def load(
    target: str = DEFAULT_TARGET, dtype: str = "auto", device: str = "auto", progress: Progress = silent
) -> LoadedModel:
    """Load DEFAULT_TARGET, a folder, a hub repository `owner/name[@revision]`, or `random:NAME` (random weights of a
    shape, see `random_targets`); code from a repository is never run.

    dtype "auto" is the fastest here; "int8" loads in bfloat16, and `prepared` rounds the weights of linears; device
    "auto" is CUDA if there is one. Raises UsageError for an unknown or unusable target, dtype or device, RaceError
    where memory or the cache's disk is too small: as far as config.json tells, before any weights are fetched."""
    place = device_named(device)
    if dtype not in ("auto", INT8, *DTYPES):
        raise choices("dtype", dtype, ("auto", INT8, *DTYPES))
    kernels = choose(place)
    if dtype == INT8 and (why := kernels.reason_against_int8()):
        raise UsageError(f"dtype 'int8' {why}; choose another device, or one of: {', '.join(('auto', *DTYPES))}")

    def accept(config: dict[str, Any]) -> None:
        _explained(target, _accept, target, config, 4 if dtype == "float32" else 2, place, kernels.free_bytes())

    source = find(target, progress, accept)
    files = [] if source.config else weights_files(source.folder)
    kernels.get_ready(progress)
    if dtype == "auto":
        dtype = kernels.best_dtype()
    with ThreadPoolExecutor(1) as beside:
        digest = None if source.digest else beside.submit(_digest, files)
        with quiet():
            progress(f"reading the tokenizer of {target}", None)
            tokenizer = _explained(target, _tokenizer, source, progress)
            progress(f"{'drawing' if source.config else 'reading'} the weights of {target}", None)
            model = _explained(target, _model, source, DTYPES[COMPUTE_DTYPE if dtype == INT8 else dtype], place)
        info = ModelInfo(
            target, source.revision, digest.result() if digest else source.digest, dtype, str(place), source.licence
        )
    return LoadedModel(model, tokenizer, info)


def _accept(target: str, config: dict[str, Any], size: int, device: torch.device, free: int) -> None:
    """size: of a weight, in bytes; free: what the device has."""
    if why := published.refusal(config) or published.quantised(config):
        raise UsageError(f"cannot load the model {target!r}: it {why}")
    if (num_bytes := published.num_parameters(config) * size) > free:
        raise RaceError(
            f"the weights of {target!r} take {num_bytes / 1e9:.1f} GB, and {device} has {free / 1e9:.1f} GB free; "
            "choose a smaller model"
        )


def give_back_memory(device: str = "auto") -> None:
    """Free what nothing refers to any more but cycles (a race's graphs and lanes are such), and give the device back
    what torch kept of it. For the moment between one model, let go, and the next."""
    gc.collect()
    choose(device_named(device)).give_back_memory()


def _tokenizer(source: Source, progress: Progress) -> Any:
    if source.config:
        return random_targets.tokenizer(source.config, progress)
    if source.name == DEFAULT_TARGET:
        return default_model.load_tokenizer(source.folder)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(source.folder), trust_remote_code=False, local_files_only=True)
    if set(tokenizer("a", add_special_tokens=False)["input_ids"]) <= set(
        tokenizer.all_special_ids
    ):  # an empty one, made from config.json alone
        raise UsageError(f"cannot load the model {source.name!r}: it has no tokenizer")
    return tokenizer


def _model(source: Source, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    if source.config:
        return random_targets.build(source.config, dtype, device)
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(
        str(source.folder),
        dtype=dtype,
        device_map=choose(device).device_map,
        trust_remote_code=False,
        local_files_only=True,
        weights_only=True,
        output_loading_info=True,
    )
    if missing := sorted(report["missing_keys"]):
        raise UsageError(
            f"the weights of {source.name!r} are not those of a {type(model).__name__}: {len(missing)} parameters "
            f"are missing, such as {missing[0]}"
        )
    return model.eval().requires_grad_(False)


def _explained(target: str, call, *arguments):
    """Call a loader; whatever it raises becomes one clear sentence, its traceback kept as the cause."""
    try:
        return call(*arguments)
    except PhotofinishError:
        raise
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise RaceError(
            f"not enough memory for the model {target!r}; choose a smaller one, or dtype bfloat16"
        ) from error
    except ImportError as error:
        raise UsageError(f"the model {target!r} needs a package that is not installed: {in_a_line(error)}") from error
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"the model {target!r} has pickled weights that are damaged or hold more than tensors; they are not loaded"
        ) from error
    except Exception as error:  # a model's files come from anywhere and can be wrong in any way
        if "trust_remote_code" in str(error):
            raise UsageError(
                f"the model {target!r} needs code of its own, which is never run here; choose one that transformers "
                "knows"
            ) from error
        raise UsageError(f"cannot load the model {target!r}: {in_a_line(error)}") from error


def _digest(files: list[Path]) -> str:
    """See ModelInfo.digest. hashlib lets other threads run meanwhile."""
    sums = {}
    for path in files:
        with path.open("rb") as file:
            sums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    if len(sums) == 1:
        return next(iter(sums.values()))
    return hashlib.sha256("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode()).hexdigest()
