"""The one seam to hardware: everything that this engine asks of it.

`choose.choose` picks one implementation for a device and dtype. It is installed into a model and goes with it
(`Prepared.kernels`). Device-neutral code knows this Protocol alone: it imports no kernel and never asks for a device's
type.

    torch.py   torch's own operations: they run anywhere, and the others are compared with them
    cpu/       compiled C, and oneDNN for the linears that the C does not take
    cuda/      Triton kernels and CUDA graphs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..model.step import Attend
    from ..progress import Progress
    from ..spec import SamplingParams
    from .host_copies import HostRead, HostWrite

T = TypeVar("T")
Chooser = Callable[["Tensor", Sequence[int], int], list[int]]
Picks = Callable[["Tensor", int, int], list[tuple[int, float]]]
"""picks(rows, num, position): of each of `num` rows of bfloat16 logits, one behind the other, the first at `position`:
the first column with the largest score, and its lead (inf where there is no other). Raises RaceError where a row is no
numbers."""
Forward = Callable[..., "tuple[Tensor | None, Any]"]
"""forward(ids [1, n], at, want_logits, want_hidden, seen) -> logits [n, vocab] and hidden states [layers + 1, n,
hidden], where they are wanted. `at`: the position of the first token. `seen` is filled with the window of every
layer."""


class Kernels(Protocol):
    """What this engine asks of hardware, and what it is told by kernels that do nothing of their own."""

    name: str
    """`torch`, `cpu` or `cuda`."""
    device: torch.device

    @property
    def on_host(self) -> bool:
        """Whether tensors lie in the host's memory, where numpy reads them without a copy."""

    # A model

    def get_ready(self, progress: Progress) -> None:
        """Do what takes long once for a machine: compile."""
        return

    def best_dtype(self) -> str:
        """`bfloat16` where steps in it are faster, else `float32`."""

    def reason_against_int8(self) -> str:
        """Why no model can have weights of 8 bits here, as it follows on "dtype 'int8'"; "" where one can."""

    def install(self, model: Any, int8: bool) -> None:
        """Put the kernels in the place of the model's fused layers and linears, in place. int8: weights of 8 bits;
        raises UnsupportedModel where no linear can have them."""

    def remove(self, model: Any) -> None:
        """Undo `install`. Only where there is a `fallback`."""
        return

    def removed(self, model: Any) -> AbstractContextManager[None]:
        """The model without these kernels while entered, afterwards with the very modules that it had. Only where there
        is a `fallback`."""
        return nullcontext()

    def fallback(self, why: str) -> Kernels | None:
        """What a model runs on that is not the same under these kernels, and `why`. None: such a model is refused."""
        return None

    def install_head(self, head: Any) -> None:
        """`install` for a draft head."""
        return

    @property
    def norms_by_layer_norm(self) -> bool:
        """Whether an RMSNorm is fastest as a layer norm over [x, -x]: torch has no other kernel for it on the CPU."""
        return self.on_host

    # A step

    def forward(self, model: Any, kv: Sequence[tuple[Tensor, Tensor]]) -> Forward | None:
        """A model's whole forward over one sequence's caches in one call. None: the model's own modules run."""
        return None

    def attention(self, model: Any, num_rows: int) -> Attend | None:
        """The attention of that model's steps of so many rows, which needs no mask. None: torch's, under masks."""
        return None

    @property
    def judges_on_device(self) -> bool:
        """Whether a whole step, its acceptance too, is one fixed call on the device: where a wait for the device costs
        more than a row."""
        return False

    @property
    def rows_cost(self) -> bool:
        """Whether a step's time grows with every row, so that half-way widths pay."""
        return self.on_host

    @property
    def warmed(self) -> set[int]:
        """Sizes of prefill for which libraries have prepared what they keep; for this thread, where they keep it by
        thread."""

    def graph_pool(self) -> Any:
        """Memory for the fixed calls of one race, whose calls run one at a time."""
        return None

    def fixed(self, function: Callable[[], T], pool: Any = None, name: str = "a fixed call") -> Callable[[], T]:
        """`function`, which takes no arguments and works on buffers that stay in place, as a call that may be a
        captured graph: see `cuda.graphs.FixedCall` for what it must not do, and for how long its results are valid."""
        return function

    def host_write(self, size: int) -> HostWrite:
        """Sends up to `size` integers to the device."""

    def host_read(self, size: int) -> HostRead:
        """Reads up to `size` integers off the device."""

    def synchronize(self) -> None:
        """Wait until the device has done everything asked of it."""
        return

    # The choice of a token

    def chooser(self, tokens: Tensor, temperature: float, seed: int, max_noise: float, near: float) -> Chooser | None:
        """What chooses from rows of bfloat16 logits on the host in one call: see `cpu.choose.Chooser`."""
        return None

    def pick_rows(self, rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float) -> tuple[Tensor, Tensor] | None:
        """`Sampler.pick_rows_with_margins` in few launches. None: by torch's operations."""
        return None

    def picks(self, token_ids: Tensor, params: SamplingParams) -> Picks | None:
        """What chooses a draft's tokens from rows of bfloat16 logits over `token_ids` [n]. None: `Sampler` does."""
        return None

    # A head's rows

    def eagle3_rows(self, head: Any) -> Any:
        """The class that computes the rows of an EAGLE-3 head for one sequence at positions that the host knows: see
        `cpu.eagle3.NativeEagle3Rows`. None: rows of fixed shapes, in fixed calls."""
        return None

    def dflash_rows(self, head: Any) -> Any:
        """The same for a DFlash head: see `cpu.dflash.NativeDFlashRows`."""
        return None

    # Training

    def install_stock(self, model: Any) -> None:
        """Put the kernels in the place of a stock model's linears, in place, where it gains by that: to read and write
        texts for training."""
        return

    def linear_for_many_rows(self, linear: nn.Linear) -> nn.Module:
        """A linear that is as fast with a hundred rows as this one, or faster."""
        return linear

    @property
    def trains_in_bfloat16(self) -> bool:
        """Whether products of bfloat16 are faster than float32's in training."""
        return False

    # The device

    def identity(self, model: Any) -> dict[str, Any]:
        """All of hardware and kernels on which a row's bits may depend: a key for what was probed. JSON values."""

    def describe(self, model: Any = None) -> str:
        """For the versions of a recording: what the kernels in that model are made of and by; "" for torch's own."""
        return ""

    def runs(self, model: Any) -> dict[str, Any]:
        """What runs a model's steps, read off its modules: "sentence" says it in words; further keys as a kind of
        kernels has them."""

    def about_device(self) -> dict[str, Any]:
        """{"type", "name", "threads"} for a recording; threads are the CPU's. More where a kind of kernels has more to
        say."""

    @property
    def runs_in_threads(self) -> bool:
        """Whether a step's time depends on torch's number of threads."""
        return self.on_host

    def free_bytes(self) -> int:
        """Memory that the device can still give, what torch keeps and does not use included; what nobody tells counts
        as enough."""

    def give_back_memory(self) -> None:
        """Give the device back what torch keeps of it and does not use."""
        return

    @property
    def device_map(self) -> dict[str, Any] | None:
        """What transformers' `from_pretrained` takes to put weights on this device at once."""

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        """Within it random numbers may be drawn; afterwards they go on as if none had been."""

    def read_bytes(self) -> int:
        """The size of a buffer to measure the memory's bandwidth by: much more than caches hold, much less than is
        free."""

    def readers(self, buffer: Tensor) -> Mapping[str, Callable[[], Any]]:
        """Kernels that read all of a float32 buffer [rows, columns] and write next to nothing, by name."""

    def seconds(self, call: Callable[[], Any]) -> float:
        """One run's seconds, by the device's own clock where it has one."""

    def reason_against_compiling(self) -> str:
        """Why torch.compile cannot make code for this device here; "" where it can."""
