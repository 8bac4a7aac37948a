"""The input of training: the target's hidden states over windows, computed once and kept on disk, in files of many
windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..progress import Progress

WINDOWS_PER_FILE = 64
BATCH_SIZE = 8


@dataclass(frozen=True)
class Batch:
    """ids [B, T] (padded with 0), lengths [B], hidden [B, T, layers * size]: the states that the head reads, last [B,
    T, size]: the input of the target's output layer."""

    ids: Tensor
    lengths: Tensor
    hidden: Tensor
    last: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on another device, hidden states as float32."""
        hidden, last = (states.to(device).float() for states in (self.hidden, self.last))
        return Batch(self.ids.to(device), self.lengths.to(device), hidden, last)

    @property
    def valid(self) -> Tensor:
        """Bool [B, T]: true at the windows' own tokens."""
        return torch.arange(self.ids.shape[1], device=self.ids.device)[None] < self.lengths[:, None]


class Features:
    """Files of WINDOWS_PER_FILE windows in a folder; written once, read by slices."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("features-*.safetensors"))
        self.index: list[tuple[Path, int, int]] = []
        for path in self.files:
            with safe_open(path, "pt") as file:
                lengths = file.get_tensor("lengths").tolist()
            self.index += [(path, i, int(length)) for i, length in enumerate(lengths)]

    @property
    def num_tokens(self) -> int:
        return sum(length for _, _, length in self.index)

    def batch(self, which: Sequence[int]) -> Batch:
        """Windows by their numbers, padded to the longest of them."""
        parts: dict[str, list[Tensor]] = {"ids": [], "hidden": [], "last": []}
        for i in which:
            path, row, length = self.index[i]
            with safe_open(path, "pt") as file:
                for name, part in parts.items():
                    part.append(file.get_slice(name)[row : row + 1, :length][0])
        ids, hidden, last = (pad_sequence(part, batch_first=True) for part in parts.values())
        return Batch(ids, torch.tensor([self.index[i][2] for i in which]), hidden, last)


@torch.inference_mode()
def extract(
    model: Any, windows: Sequence[Sequence[int]], hidden_layers: Sequence[int], folder: Path, progress: Progress
) -> None:
    """Run the stock model over all windows and write `folder`'s files; existing ones are kept, so that an interrupted
    run can be resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    device = next(model.parameters()).device
    decoder = model.get_decoder()
    windows = sorted(windows, key=len)
    for number, first in enumerate(range(0, len(windows), WINDOWS_PER_FILE)):
        path = folder / f"features-{number:05d}.safetensors"
        if path.exists():
            continue
        progress("reading the target's hidden states", first / len(windows))
        chosen = windows[first : first + WINDOWS_PER_FILE]
        longest = max(map(len, chosen))
        ids = torch.tensor([[*w, *[0] * (longest - len(w))] for w in chosen])
        lengths = torch.tensor([len(w) for w in chosen])
        hidden, last = [], []
        for start in range(0, len(chosen), BATCH_SIZE):
            part = ids[start : start + BATCH_SIZE].to(device)
            mask = (torch.arange(longest)[None] < lengths[start : start + BATCH_SIZE, None]).long().to(device)
            out = decoder(input_ids=part, attention_mask=mask, use_cache=False, output_hidden_states=True)
            hidden.append(torch.cat([out.hidden_states[i] for i in hidden_layers], -1).bfloat16().cpu())
            last.append(out.last_hidden_state.bfloat16().cpu())
        partial = path.with_suffix(".partial")
        save_file({"ids": ids, "lengths": lengths, "hidden": torch.cat(hidden), "last": torch.cat(last)}, partial)
        partial.rename(path)
