"""The CPU's kernels: compiled C with a compiler and the right instructions, oneDNN for linears that the C does not
take."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...layers.step import Attend
from ...progress import Progress
from ..torch import Chooser, Forward, Kernels, Picks, what_runs
from . import build
from .attention import attend, is_for
from .choose_token import Chooser as NativeChooser
from .decoder import NativeDecoder
from .eagle3 import NativeEagle3Rows, reason_against_head
from .forward import NativeForward
from .packing import PackedLinear, onednn_packs, pack, pack_head
from .picks import NativePicks

DECODERS = {"NativeDecoder": "compiled C, a whole step in one call"}
LINEARS = {"PackedLinear": "packed by oneDNN", "NativeLinear": "compiled C"}


class CpuKernels(Kernels):
    """See `Kernels`."""

    name = "cpu"

    def get_ready(self, progress: Progress) -> None:
        progress("getting the kernels for this processor ready", None)
        build.has_kernels()

    def best_dtype(self) -> str:
        """Compiled kernels, and oneDNN's on some processors, read half as many bytes."""
        return "bfloat16" if build.has_kernels() or onednn_packs(torch.bfloat16) else super().best_dtype()

    def install(self, model: Any) -> None:
        """Decoders first, then every other linear."""
        pack(model)

    def install_head(self, head: Any) -> None:
        pack_head(head)
        pack(head)

    def forward(self, model: Any, kv: Sequence[tuple[Tensor, Tensor]]) -> Forward | None:
        return NativeForward(model, kv) if isinstance(model.get_decoder(), NativeDecoder) else None

    def attention(self, model: Any, num_rows: int) -> Attend | None:
        return attend if build.has_kernels() and is_for(model) else None

    def chooser(self, tokens: Tensor, temperature: float, seed: int, max_noise: float, near: float) -> Chooser | None:
        has_choice = build.has("photofinish_choose")
        return NativeChooser(tokens, temperature, seed, max_noise, near) if has_choice else None

    def picks(self, token_ids: Tensor, temperature: float, seed: int) -> Picks | None:
        if not build.has("photofinish_picks"):
            return None
        return NativePicks(token_ids.to(torch.int32).contiguous().numpy(), temperature, seed)

    def eagle3_rows(self, head: Any) -> Any:
        return NativeEagle3Rows if reason_against_head(head) is None else None

    def linear_for_many_rows(self, linear: nn.Linear) -> nn.Module:
        """oneDNN's."""
        return PackedLinear(linear) if onednn_packs(linear.weight.dtype) else linear

    @property
    def trains_in_bfloat16(self) -> bool:
        return onednn_packs(torch.bfloat16)

    def identity(self, model: Any) -> dict[str, Any]:
        return super().identity(model) | {"kernels": [self.name, build.description()]}

    def describe(self, model: Any = None) -> str:
        return build.description()

    def runs(self, model: Any) -> str:
        attention = "torch's" if self.attention(model, 1) is None else "ours, compiled C"
        linears = LINEARS | {"NativeLinear": "compiled C with AMX"} if build.has_tiles() else LINEARS
        return what_runs(model, DECODERS, linears, attention)
