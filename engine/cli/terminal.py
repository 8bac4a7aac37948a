"""What only a terminal shows: a line of progress, drawn between steps and never by a thread, so that no drawing slows a
timed step; and in a race's texts what became of each guess.

Nothing here takes a model's text for markup or terminal codes: it goes through `clean` and into rich's Text, which
parses nothing."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from ..core.events import Step
from ..recordings.words import clean

REFRESH_S = 0.1
STYLES = {
    "accepted": "underline #009e73",
    "rejected": "strike dim #d55e00",
    "more": "dim #d55e00",
    "correction": "bold #e69f00",
    "bonus": "bold italic #56b4e9",
    "own": "",
}  # Okabe-Ito hues, each with a mark that does not need colour


def marked(step: Step) -> list[tuple[str, str]]:
    """The texts of a step, each with its mark: accepted drafts, rejected ones in their place, then the target's own
    token. Of a tree's branches it shows the likeliest, and the number of other dropped tokens. Drafts beyond the end
    of the completion were neither accepted nor rejected and are left out."""
    n = step.num_accepted
    committed = step.pieces or tuple(f"<{token}>" for token in step.token_ids)
    drafted = step.drafted_pieces or tuple(f"<{token}>" for token in step.drafted)
    out = [(clean(piece), "accepted") for piece in committed[:n]]
    if own := committed[n:]:
        branch = _likeliest(step)
        out += [(clean(drafted[i]).replace("\n", "⏎"), "rejected") for i in branch]
        if more := len(drafted) - n - len(branch) if drafted else 0:
            out.append((f"+{more}", "more"))
        out += [(clean(piece), "correction" if step.is_refuted else "bonus" if n else "own") for piece in own]
    return out


def _likeliest(step: Step) -> list[int]:
    """The drafted tokens' numbers from the accepted ones to a leaf, by their chances, or the first if unknown."""
    path: list[int] = []
    row, follows = (step.kept[-1] + 1 if step.kept else 0), step.follows
    while after := [i for i, before in enumerate(follows) if before == row]:
        path.append(max(after, key=lambda i: step.chances[i] if step.chances else 0.0))
        row = path[-1] + 1
    return path


class ProgressLine(Progress):
    """A progress callback as a context manager: draws one bar on a terminal, which vanishes at the end, and nothing
    anywhere else."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        texts = ("{task.fields[percent]}", "{task.fields[stage]}")
        percent, stage = (TextColumn(text, markup=False, table_column=Column()) for text in texts)
        columns = percent, BarColumn(24), stage
        super().__init__(*columns, console=console, auto_refresh=False, transient=True, disable=not is_live(console))
        self.clock, self.stage, self.drawn_at = clock, "", -REFRESH_S
        self.bar = self.add_task("", percent="", stage="", visible=False)

    def __call__(self, stage: str, share: float | None) -> None:
        if stage == self.stage and self.clock() - self.drawn_at < REFRESH_S:
            return
        done = 100 * min(1.0, max(0.0, share or 0.0))
        percent = "..." if share is None else f"{done:.0f}%"
        self.update(self.bar, completed=done, percent=percent, stage=clean(stage), visible=True, refresh=True)
        self.stage, self.drawn_at = stage, self.clock()


def is_live(console: Console) -> bool:
    """Whether this console can be redrawn."""
    return console.is_terminal and not console.is_dumb_terminal


def legend(trees: bool) -> Text:
    """What the marks mean, each in its own mark. trees: whether any draft was one."""
    own = Text.assemble("; the target's own: ", ("correction", STYLES["correction"]), ", ", ("bonus", STYLES["bonus"]))
    drafts = Text.assemble("drafts: ", ("accepted", STYLES["accepted"]), ", ", ("rejected", STYLES["rejected"]))
    if trees:
        drafts += Text.assemble(", ", ("+n", STYLES["more"]), " more rejected")
    return drafts + own
