"""`python -m engine train`: text that the target writes, with its hidden states, then the head, each kept in --out so
that a stopped run can be resumed."""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.spec import SMALLEST
from ..progress import Progress
from .arguments import Command, Option, integer, not_empty, number, setting, switch
from .options import DEVICE, DTYPE, TARGET, set_threads
from .output import progress_line

WORDS = "words.json"
WRITTEN_WORDS = "words-to-write.json"
NUM_WRITTEN_WORDS = 40_960
# Folder, windows and tokens of what the target writes with all its words, to choose those it then writes with.
FIRST, NUM_FIRST, FIRST_TOKENS = "first", 256, 96


def train(options: Namespace) -> int:
    """Run the command; returns the exit status. Raises UsageError or RaceError."""
    if options.steps is None and options.minutes is None:
        raise UsageError("give the length of the training, by --steps N or --minutes M")
    set_threads(options.threads)
    with progress_line() as progress:
        progress("starting torch", None)
        import torch

        from ..kernels.choose import choose
        from ..loading.loading import DEFAULT_TARGET, load
        from ..training.features import Features
        from ..training.new_head import Design, TargetWeights, begin_from, default_layers, new_head, new_spec, save_head
        from ..training.trainer import Report, Schedule, Trainer, keep_freed_memory

        keep_freed_memory()
        folder = Path(options.out)
        data = folder / "data"
        loaded = load(options.target or DEFAULT_TARGET, dtype=options.dtype, device=options.device, progress=progress)
        model, name = loaded.model, loaded.info.name
        device = next(model.parameters()).device
        target = TargetWeights.of(model)
        if (kernels := choose(device, model.dtype)).on_host:  # of a stock model these are only linears
            kernels.install(model)
        hidden_layers = default_layers(target.config.num_hidden_layers)
        _write(options, loaded, target.output, hidden_layers, data, progress)
        features = Features(data)
        design = Design(options.intermediate, options.vocabulary, options.chain)
        words = _words(folder / WORDS, features, design.draft_vocab_size, target.output)
        spec = new_spec(design.intermediate_size, target, hidden_layers)
        torch.manual_seed(options.seed)
        head = new_head(spec, target, words, _scales(features))
        if options.begin_from:
            begin_from(head, Path(options.begin_from))
        schedule = Schedule(options.steps, options.minutes, options.batch, options.learning_rate)
        trainer = Trainer(head, design, features, target.output[words].float(), schedule, folder, device, options.seed)
        log = folder / "log.jsonl"

        def report(now: Report) -> None:
            progress(f"training: loss {now.loss:.3f}, held-out tokens a step {now.held_out_length:.2f}", now.share)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**asdict(now), "num_tokens_of_data": features.num_tokens}) + "\n")
            print(_line(now), flush=True)

        trainer.run(report)
        save_head(head, folder, name, design.num_steps, compact=options.compact)
    print(f"the head is in {options.out}: config.json and model.safetensors, in the speculators format")
    return 0


def _line(now: Any) -> str:
    alphas = " ".join(f"{a:.2f}" for a in now.held_out_alphas)
    return (
        f"step {now.step}  {now.share:4.0%}  {now.elapsed_s / 60:.1f} min  loss {now.loss:.3f}  held out: "
        f"{now.held_out_length:.2f} tokens a step, acceptance by position {alphas}"
    )


def _write(
    options: Namespace, loaded: Any, output: Any, hidden_layers: Sequence[int], data: Path, progress: Progress
) -> None:
    """Let the target write windows into `data`: a few with all its words, the rest with the likeliest of these."""
    import torch

    from ..training.features import Features
    from ..training.openings import openings
    from ..training.written import Writer, Writing, write_features

    texts = Path(options.data) if options.data else None

    def write(words: Any, num_tokens: int, num_windows: int, folder: Path, seed: int) -> None:
        writer = Writer(loaded.model, output, words, hidden_layers, Writing(num_tokens, options.together))
        write_features(writer, openings(loaded.tokenizer, seed, texts), num_windows, folder, seed, progress)

    if not (data / WRITTEN_WORDS).exists():
        num_tokens, num_windows = min(FIRST_TOKENS, options.new_tokens), min(NUM_FIRST, options.windows)
        write(torch.arange(len(output)), num_tokens, num_windows, data / FIRST, options.seed + 1)
    words = _words(data / WRITTEN_WORDS, Features(data / FIRST), NUM_WRITTEN_WORDS, output)
    write(words, options.new_tokens, options.windows, data, options.seed)


def _words(path: Path, features: Any, count: int, output: Any) -> Any:
    """The head's words, chosen when it was first trained."""
    import torch

    from ..training.new_head import likely_words

    if path.exists():
        return torch.tensor(json.loads(path.read_text()))
    words = likely_words(features, output, count)
    path.write_text(json.dumps(words.tolist()))
    return words


def _scales(features: Any) -> Any:
    """The typical size of every feature read [layers * size], of normalised rows."""
    import torch

    batch = features.batch(list(range(0, len(features.index), max(1, len(features.index) // 16))))
    rows = batch.hidden[batch.valid].float()
    rows = rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6)
    return rows.pow(2).median(0).values.sqrt().clamp(min=1e-4)


_positive = number(SMALLEST, 1e6, "a number above 0 and at most 1000000")


def _count(name: str, low: int, high: int, default: int, help: str) -> Option:
    """An option that takes an integer from `low` to `high`."""
    return setting(f"{name} N", integer(low, high), f"{help} (default {default})", default)


TRAIN = Command(
    (
        TARGET,
        setting(
            "--data DIR", not_empty, "a folder of text files; a third of the windows then begins with a piece of one"
        ),
        setting(
            "--out DIR",
            not_empty,
            "where the head, its checkpoints and its log go; a stopped run started again goes on",
            required=True,
        ),
        setting("--steps N", integer(1, 10_000_000), "optimiser steps"),
        setting("--minutes M", _positive, "minutes of training, data apart"),
        _count("--windows", 2, 10_000_000, 6000, "windows: what the target writes after beginnings of many kinds"),
        _count("--new-tokens", 32, 100_000, 176, "tokens of a window, its beginning apart"),
        _count("--together", 1, 4096, 128, "windows written together"),
        _count("--vocabulary", 2, 10_000_000, 16_384, "words the head drafts among, those the target most likely says"),
        setting("--begin-from DIR", not_empty, "a head of the same shape whose weights to begin with"),
        _count("--intermediate", 8, 1_000_000, 2048, "width of its MLP"),
        _count("--chain", 1, 16, 4, "steps of training-time test"),
        switch(
            "--compact",
            "store matrices in 8 bits, and no output rows if they are the target's; this engine reads such heads",
        ),
        _count("--batch", 1, 4096, 8, "windows a step"),
        setting("--learning-rate X", _positive, "at its peak (default 0.001)", 1e-3),
        _count("--seed", 0, 2**63 - 1, 0, "for data, weights and order"),
        DTYPE,
        DEVICE,
        setting("--threads N", integer(1, 64), "CPU threads (default: torch's own choice)"),
    ),
    train,
)
