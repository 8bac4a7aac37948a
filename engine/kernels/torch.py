"""What this engine needs from hardware, on torch's own operations: they run anywhere, and the others are compared with
them."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ..layers.step import Attend
from ..progress import Progress
from .host_copies import HostRead, HostWrite
from .processor import cpu_info, free_bytes

MIB = 1024**2
# A buffer to read is so many times the last-level caches, so that little of it stays in them between reads.
CACHES = 8
USUAL, LARGEST, SHARE_OF_MEMORY = 256 * MIB, 1024 * MIB, 8
T = TypeVar("T")
Chooser = Callable[[Tensor, Sequence[int], int], list[int]]
# picks(rows, positions, num_best): for each row of bfloat16 logits [n, columns], at its position in the completion: the
# columns with the largest scores and those scores, best first, the first of equals. Beyond the first, columns more than
# 10 below the largest logit are left out. Raises RaceError for a NaN row.
Picks = Callable[[Tensor, Sequence[int], int], list[list[tuple[int, float]]]]
# forward(ids [1, n], at, want_logits, want_hidden, seen, parents) -> logits [n, vocab] and hidden states [layers + 1,
# n, hidden], if wanted. `at`: the position of the first token. `seen` receives the window of every layer. parents [n],
# int32: row i follows row parents[i], an earlier one, at the next position; None: the row before. forward.keep(at,
# rows): the cache's entries from `at` on become those of these rows of the last step, ascending.
Forward = Callable[..., tuple[Tensor | None, Any]]


class Notes(NamedTuple):
    """Where a pick on the device is noted; device tensors, int64. Row r picks the draft's token number place + r, at
    position + place + r in the completion, whose key is that row of the keys.

    picked: [2, any], the target's ids (-1 for a NaN row) and margins (as their bits) of a draft's tokens; beyond its
        end the last is overwritten.
    ids: the target's id of each column; None if they are equal.
    token: [1], for one row: receives its id too. moved: for one row, [a power of two] numbers that become one more."""

    place: Tensor
    position: Tensor
    picked: Tensor
    ids: Tensor | None
    token: Tensor | None
    moved: Tensor | None


class Kernels:
    """On torch's own operations. Other kernels derive from it, and override what they do otherwise."""

    name = "torch"  # or `cpu`, `cuda`
    # Whether a whole step, acceptance included, is one fixed call on the device: where a wait costs more than a row.
    judges_on_device = False
    num_rounded = 0  # rows of a first replayed step that round differently than when run directly

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._warmed: set[int] = set()

    @property
    def on_host(self) -> bool:
        """Whether tensors lie in the host's memory, where numpy reads them without a copy."""
        return self.device.type == "cpu"

    # A model

    def get_ready(self, progress: Progress) -> None:
        """Called before a model is loaded: set up torch, and compile what is compiled once per machine."""

    @property
    def must_be_tried(self) -> bool:
        """Whether they must first prove right on this machine, in a separate process (`runner.kernel_trial`)."""
        return False

    @property
    def compares_with_torch(self) -> bool:
        """Whether a model on these kernels is compared with itself on torch's (`runner.agreement`)."""
        return False

    def best_dtype(self) -> str:
        """`bfloat16` if its steps are known to be faster, else `float32`."""
        return "float32"

    @property
    def captures_experts(self) -> bool:
        """Whether a step of a mixture of experts can be a graph, if steps of other models are."""
        return True

    def install(self, model: Any) -> None:
        """Replace the model's fused layers and linears, in place."""

    def remove(self, model: Any) -> None:
        """Undo `install`. Only if there is a lower rung."""

    def lower(self, why: str) -> Kernels | None:
        """The kernels one rung down, for a model that failed on these, or None; `why` becomes part of `runs`. Does not
        touch the model: see `runner.prepare.lowered`.

        Raises RaceError if the device is lost, so that nothing can run on it until the program restarts."""
        return None

    def install_head(self, head: Any) -> None:
        """`install` for a draft head."""

    # A step

    def forward(self, model: Any, kv: Sequence[tuple[Tensor, Tensor]]) -> Forward | None:
        """A model's whole forward over one sequence's caches in one call. None: the model's own modules run."""
        return None

    def attention(self, model: Any, num_rows: int) -> Attend | None:
        """The attention of steps of that many rows, without a mask. None: torch's, with masks."""
        return None

    @property
    def warmed(self) -> set[int]:
        """Sizes of prefill for which libraries have set up what they keep; of this thread only, if they keep it by
        thread."""
        return self._warmed

    def graph_pool(self) -> Any:
        """Memory for the fixed calls of one race, which run one at a time. None: nothing is captured."""
        return None

    def fixed(self, function: Callable[[], T], pool: Any = None, name: str = "a fixed call") -> Callable[[], T]:
        """`function`, which takes no arguments and works on buffers that stay in place, as a call that may be a
        captured graph: see `cuda.graphs.FixedCall` for what it must not do, and for how long its results are valid.
        Returns `function` itself if nothing is captured."""
        return function

    def host_write(self, size: int) -> HostWrite:
        """Sends up to `size` integers to the device."""
        return HostWrite(size, self.device)

    def host_read(self, size: int) -> HostRead:
        """Reads up to `size` integers off the device."""
        return HostRead(size)

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""

    # The choice of a token

    def chooser(self, tokens: Tensor, temperature: float, seed: int, max_noise: float, near: float) -> Chooser | None:
        """Chooses from rows of bfloat16 logits on the host in one call: see `cpu.choose.Chooser`."""
        return None

    def pick_rows(
        self, rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float, notes: Notes | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """`Sampler.pick_rows_with_margins` in few launches, noted in the same if asked for. None: torch's
        operations."""
        return None

    def picks(self, token_ids: Tensor, temperature: float, seed: int) -> Picks | None:
        """Chooses a draft's tokens from rows of bfloat16 logits over `token_ids` [n]. seed: through splitmix64. None:
        `Sampler` does."""
        return None

    # A head's rows

    def eagle3_rows(self, head: Any) -> Any:
        """The class that computes rows of an EAGLE-3 head for one sequence at positions known to the host: see
        `cpu.eagle3.NativeEagle3Rows`. None: rows of fixed shapes, in fixed calls."""
        return None

    def head_rows(self, head: Any, buffers: Any, num_rows: int) -> tuple[Any, str]:
        """What computes up to `num_rows` rows of a draft head at once over a drafter's HeadBuffers, without masks: see
        `cuda.heads`. None: the head's own modules. And what runs it, in words, "" where nothing else could."""
        return None, ""

    # Training

    def linear_for_many_rows(self, linear: nn.Linear) -> nn.Module:
        """A linear that is at least as fast with a hundred rows as this one."""
        return linear

    @property
    def trains_in_bfloat16(self) -> bool:
        """Whether training products are faster in bfloat16 than in float32."""
        return False

    # The device

    def identity(self, model: Any) -> dict[str, Any]:
        """Whatever in hardware and kernels a row's bits may depend on, as JSON values: the key of a probe's result."""
        name = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}" if self.on_host else self.device.type
        return {"kernels": [self.name], "device": name, "threads": torch.get_num_threads() if self.on_host else 0}

    def describe(self, model: Any = None) -> str:
        """What the model's kernels are built from and by, for the versions of a recording; "" for torch's own."""
        return ""

    def runs(self, model: Any) -> str:
        """What runs a model's steps, in words, read off its modules."""
        return what_runs(model, {}, {}, "torch's")

    def about_device(self) -> dict[str, Any]:
        """{"type", "name", "threads"} for a recording; threads: the CPU's."""
        return {"type": self.device.type, "name": cpu_name(), "threads": torch.get_num_threads()}

    def free_bytes(self) -> int:
        """Memory that the device can still give, torch's unused memory included; plenty if unknown."""
        return free_bytes()

    def give_back_memory(self) -> None:
        """Return torch's unused memory to the device."""

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        """Within it random numbers may be drawn; afterwards the generators are as before."""
        return torch.random.fork_rng(devices=[])

    def read_bytes(self) -> int:
        """Size of a buffer for measuring the memory's bandwidth: far larger than caches, far smaller than free
        memory."""
        return min(max(USUAL, CACHES * _last_level_caches()), LARGEST, self.free_bytes() // SHARE_OF_MEMORY)

    def readers(self, buffer: Tensor) -> Mapping[str, Callable[[], Any]]:
        """Kernels, by name, that read all of a float32 buffer [rows, columns] and write next to nothing."""
        flat, vector = buffer.view(-1), torch.ones(buffer.shape[1], dtype=buffer.dtype, device=buffer.device)
        kernels: dict[str, Callable[[], Any]] = {
            "a sum of float32": flat.sum,
            "a dot product of float32": lambda: torch.dot(flat, flat),
            "a matrix-vector product of float32": lambda: torch.mv(buffer, vector),
        }
        if self.device.type != "mps":
            kernels |= {"a sum of float64": flat.view(torch.float64).sum, "a sum of int64": flat.view(torch.int64).sum}
        return kernels

    def seconds(self, call: Callable[[], Any]) -> float:
        """Seconds of one run, by the device's own clock if it has one."""
        started = time.perf_counter()
        call().sum().item()  # waits for the device
        return time.perf_counter() - started


def what_runs(model: Any, decoders: Mapping[str, str], linears: Mapping[str, str], attention: str) -> str:
    """A model's decoder, linears and attention, and what runs them. decoders, linears: class -> what runs it, unless
    torch does."""
    linears = {"Linear": "torch", **linears}
    decoder = type(model.get_decoder()).__name__
    layers = {"FusedDecoder": "torch", "HybridDecoder": "torch", **decoders}.get(decoder, "transformers' own")
    kinds = [linears[name] for module in model.modules() if (name := type(module).__name__) in linears]
    listed = ", ".join(f"{num} {kind}" for kind, num in sorted(Counter(kinds).items())) or "none"
    return f"steps run by {decoder} ({layers}); linears: {listed}; attention: {attention}"


def cpu_name() -> str:
    """The processor's name from the kernel, and its number of cores. A virtual machine's may be that of many processors
    ("AMD EPYC"): its family and model are then added, or two machines would count as one."""
    name = cpu_info("model name") or platform.processor() or platform.machine()
    if (family := cpu_info("cpu family")) and not any(map(str.isdigit, name)):
        name += f" (family {family}, model {cpu_info('model')})"
    return f"{name}, {os.cpu_count()} cores"


def _last_level_caches() -> int:
    """Bytes of all last-level caches together; 0 if unknown."""
    sizes: dict[str, int] = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index3"):
        try:
            shared, size = (folder / "shared_cpu_list").read_text().strip(), (folder / "size").read_text().strip()
            sizes[shared] = int(size.rstrip("KM")) * (MIB if size.endswith("M") else 1024)
        except (OSError, ValueError):
            continue
    return sum(sizes.values())
