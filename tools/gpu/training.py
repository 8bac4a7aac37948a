"""The head of the default model, trained further on more of that model's own text, and the new one against the one that
ships. Needs that model, from its package or from the cache."""

import io
import json
import shutil
from contextlib import redirect_stdout
from typing import Any

from safetensors.torch import load_file

from engine.cache import cache_dir
from engine.cli.main import main
from tests.helpers import ROOT
from tools.gpu.part import Part
from tools.gpu.races import DRAFTERS, TARGET

WINDOWS, TOGETHER = 16_384, 1024  # 2.9 million tokens, 15 GB
HOW = ("--batch", "32", "--learning-rate", "5e-4", "--compact")
END_S = 45.0  # of the time that is left to train: loading, and writing the head
SHIPPED, FILES = ROOT / "assets" / "heads" / "eagle3", ("config.json", "model.safetensors")
PROMPTS = ROOT / "assets" / "prompts" / "held_out.json"


def train(part: Part) -> None:
    """More text than there is, then training until the time is over. Both stay in the cache of this machine, where the
    next call goes on; the head is left in DIR."""
    folder, together = cache_dir() / "gpu-head", 4 if part.small else TOGETHER
    folder.mkdir(parents=True, exist_ok=True)
    num_windows = together * len(list((folder / "data").glob("features-*"))) + (8 if part.small else WINDOWS)
    small = ("--target", TARGET, "--device", "cpu", "--new-tokens", "40")
    how = (*HOW, *(small if part.small else ("--device", "cuda", "--dtype", "bfloat16", "--begin-from", str(SHIPPED))))
    if not part.small:  # the same words as the one that ships
        has_row = load_file(SHIPPED / FILES[1])["t2d"]
        (folder / "words.json").write_text(json.dumps(has_row.nonzero()[:, 0].tolist()))

    def run(*how_long: str) -> Any:
        sizes = ("--windows", str(num_windows), "--together", str(together))
        if status := main(["train", "--out", str(folder), *how, *sizes, *how_long]):
            raise RuntimeError(f"engine train ended with status {status}")
        log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        tokens, said = log[-1]["num_tokens_of_data"], f"{log[-1]['held_out_length']:.3f} tokens a step held out"
        part.row(f"{tokens:,} tokens of text; step {log[-1]['step']} in {log[-1]['elapsed_s']:.0f} s: {said}", log=log)
        return log[-1]["elapsed_s"]

    done_s = run("--steps", "1")  # one that changes next to nothing
    minutes = 0.02 if part.small else max(1.0, (done_s + part.left - END_S) / 60)
    run("--minutes", f"{minutes:.2f}")
    (part.out / "head").mkdir(exist_ok=True)
    for name in FILES:
        shutil.copy(folder / name, part.out / "head")


def evaluate(part: Part) -> None:
    """A study of both heads on prompts written by hand that neither was trained on."""
    heads = [DRAFTERS["eagle3"][0] if part.small else "eagle3", f"eagle3:{part.out / 'head'}"]
    how = ["--drafter", ",".join(heads), "--temperature", "0.8", "--prompts", str(PROMPTS), "--dtype", "bfloat16"]
    how += ["--target", TARGET, "--limit", "1", "--max-new-tokens", "8"] if part.small else ["--limit", "16"]
    saved, said = ["--save", str(part.out / "heads.jsonl"), "--device", "cuda", "--json"], io.StringIO()
    with redirect_stdout(said):
        status = main(["study-prompts", *how, *saved])
    for head, figures in json.loads(said.getvalue() or '{"summary": {}}')["summary"].items():
        says = f"{head}: {figures['mean_acceptance_length']:.3f} tokens a step, {figures['median_speedup']:.2f}x"
        part.row(says, status == 0, **figures)
    if status:
        raise RuntimeError(f"engine study-prompts ended with status {status}")
