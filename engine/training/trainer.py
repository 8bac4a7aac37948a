"""The training loop: AdamW, a warm-up and a cosine to zero, checkpoints for resuming, held-out acceptance on the
way."""

import ctypes
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.errors import UsageError
from ..heads.eagle3 import Eagle3Head
from ..heads.head_layers import rope_table
from ..kernels.choose import choose
from .features import Batch, Features
from .losses import eagle3_loss, mean_length
from .new_head import Design

CHECKPOINT = "checkpoint.pt"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # from glibc's malloc.h
HELD_OUT_SHARE = 0.03
HELD_OUT_BATCHES = 6
# One in this many steps trains the whole chain, the others only its first place: more text in the same time.
LONG_EVERY = 3


@dataclass(frozen=True)
class Schedule:
    """How long and how fast. Ends at `num_steps` optimiser steps or after `minutes` of training, whichever is given and
    comes first; the learning rate falls to zero there."""

    num_steps: int | None = None
    minutes: float | None = None
    batch_size: int = 8
    learning_rate: float = 1e-3
    warmup: float = 0.03
    report_every: int = 50
    save_every_s: float = 120.0


@dataclass(frozen=True)
class Report:
    """Progress of training: share done (0 to 1), the loss's recent mean, the expected tokens per step on held-out
    windows, and their acceptance by place."""

    step: int
    share: float
    elapsed_s: float
    loss: float
    held_out_length: float
    held_out_alphas: tuple[float, ...]


class Trainer:
    """Trains `head` on `features`. The state for resuming is in `folder / CHECKPOINT`; the order of windows follows
    from the seed and step."""

    def __init__(
        self,
        head: Eagle3Head,
        design: Design,
        features: Features,
        output: Tensor,
        schedule: Schedule,
        folder: Path,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.head, self.output, self.device = head.to(device), output.to(device), device
        self.design, self.features, self.schedule, self.folder, self.seed = design, features, schedule, folder, seed
        folder.mkdir(parents=True, exist_ok=True)
        self.head.train().requires_grad_(True)
        self.head.lm_head.requires_grad_(False)  # the target's own rows, as in EAGLE 1
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=schedule.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        self.step, self.elapsed_s = 0, 0.0
        longest = max(length for _, _, length in features.index)
        self.rope = rope_table(head.spec.layers, longest, torch.float32, device)
        num_held_out = max(1, round(len(features.index) * HELD_OUT_SHARE))
        order = torch.randperm(len(features.index), generator=torch.Generator().manual_seed(seed)).tolist()
        self.held_out, self.train_on = order[:num_held_out], order[num_held_out:]
        self._resume()

    def run(self, report: Callable[[Report], None]) -> None:
        """Train to the end of the schedule, calling `report` regularly and at the end, with share 1. Does nothing if
        the schedule is done already."""
        losses: list[float] = []
        saved = started = time.monotonic()
        before = self.elapsed_s
        while self.share < 1:
            losses.append(self._train_step())
            self.step += 1
            now = time.monotonic()
            self.elapsed_s = before + now - started
            if now - saved > self.schedule.save_every_s:
                self.save()
                saved = now
            if self.step % self.schedule.report_every == 0 or self.share >= 1:
                report(self._report(losses))
                losses = []
        self.save()

    @property
    def share(self) -> float:
        """How much of the schedule is done."""
        parts = [
            self.step / self.schedule.num_steps if self.schedule.num_steps else 0.0,
            self.elapsed_s / (60 * self.schedule.minutes) if self.schedule.minutes else 0.0,
        ]
        return min(1.0, max(parts))

    def _train_step(self) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.learning_rate * rate(self.share, self.schedule.warmup)
        batch = self.features.batch(self._windows_of(self.step)).to(self.device)
        loss, _ = self._loss(batch, 1 if self.step % LONG_EVERY else self.design.num_steps)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach())

    def _loss(self, batch: Batch, num_steps: int) -> tuple[Tensor, Tensor | None]:
        halves = choose(self.device, torch.float32).trains_in_bfloat16
        with torch.autocast(self.device.type, torch.bfloat16, enabled=halves):
            return eagle3_loss(self.head, batch, self.output, self.rope, num_steps)

    def _windows_of(self, step: int) -> list[int]:
        """The windows of a step: each epoch in another order, windows of similar length together."""
        size = self.schedule.batch_size
        per_epoch = max(1, len(self.train_on) // size)
        epoch, place = divmod(step, per_epoch)
        generator = torch.Generator().manual_seed(self.seed * 7_919 + epoch)

        def key(i: int) -> tuple[int, int]:
            return self.features.index[self.train_on[i]][2] // 32, (i * 2_654_435_761 + epoch * 40_503) % 2**32

        by_length = sorted(range(len(self.train_on)), key=key)
        batches = [by_length[i * size : (i + 1) * size] for i in range(per_epoch)]
        return [self.train_on[i] for i in batches[int(torch.randperm(per_epoch, generator=generator)[place])]]

    @torch.no_grad()
    def _report(self, losses: list[float]) -> Report:
        size = self.schedule.batch_size
        ordered = sorted(self.held_out, key=lambda i: self.features.index[i][2])
        starts = range(0, len(ordered), max(size, len(ordered) // HELD_OUT_BATCHES))
        batches = (self.features.batch(ordered[s : s + size]).to(self.device) for s in starts)
        measured = (self._loss(batch, self.design.num_steps)[1] for batch in batches)
        alphas = torch.cat([alpha.float() for alpha in measured if alpha is not None])
        by_place = tuple(alphas.mean(0).tolist())
        return Report(self.step, self.share, self.elapsed_s, sum(losses) / len(losses), mean_length(alphas), by_place)

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        partial = self.folder / f"{CHECKPOINT}.partial"
        state: dict[str, Any] = {
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "design": asdict(self.design),
        }
        torch.save(state, partial)
        partial.rename(self.folder / CHECKPOINT)

    def _resume(self) -> None:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        if state["design"] != asdict(self.design):
            raise UsageError(
                f"{str(self.folder)!r} holds a checkpoint of another head, {state['design']}; choose another --out, "
                "or the same settings"
            )
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.elapsed_s = state["step"], state["elapsed_s"]


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: a training step allocates blocks of up to 100 MB again and again, and to map and
    clear them anew takes nearly half of its time. Does nothing with another C library."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def rate(share: float, warmup: float) -> float:
    """The learning rate's factor when `share` of the schedule is done."""
    return share / warmup + 1e-3 if share < warmup else 0.5 * (1 + math.cos(math.pi * (share - warmup) / (1 - warmup)))
