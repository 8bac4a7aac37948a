"""A race in a terminal: lanes side by side while they run, drawn between steps and never by a thread, so that no
drawing slows a timed step.

Nothing here takes a model's text for markup or terminal codes: it goes through `clean` and into rich's Text, which
parses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..core.events import Failed, Finished, LaneEvent, Started, Step
from ..core.spec import PLAIN
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
NUM_ROWS_AROUND = 9
MIN_ROWS = 3
MIN_COLUMNS = 26  # the least width of a lane's panel next to others


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


class LaneView:
    """The screen's state of one lane."""

    def __init__(self, name: str, role: str, synthetic: bool) -> None:
        self.name, self.role, self.synthetic = name, role, synthetic
        self.spans: list[tuple[str, str]] = []
        self.num_tokens = self.num_timed = self.num_steps = self.num_drafted = self.num_accepted = 0
        self.clock_s = 0.0
        self.status = "prefill"
        self.trees = False

    def take(self, event: LaneEvent) -> None:
        self.clock_s = event.clock_s
        match event.event:
            case Started():
                self.status = "running"
            case Step() as step:
                self.spans += [(text, STYLES[mark]) for text, mark in marked(step)]
                self.num_tokens += len(step.token_ids)
                self.num_timed += len(step.token_ids) if self.clock_s > 0 else 0
                self.num_steps += 1
                self.num_drafted += step.num_drafted
                self.num_accepted += step.num_accepted
                self.trees = self.trees or bool(step.parents)
            case Finished(reason=reason):
                self.status = f"ended: {reason}"
            case Failed(message=message):
                self.status = "failed"
                self.spans.append((f"\nfailed: {clean(message)}", "bold reverse"))

    def speed(self) -> str:
        return f"{self.num_timed / self.clock_s:.1f} tok/s" if self.clock_s > 0 and self.num_timed else "- tok/s"

    def panel(self, text: Text, height: int | None = None) -> Panel:
        title = Text(f"{clean(self.name)}  {self.speed()}", "bold")
        if self.synthetic:
            title.append("  SYNTHETIC", "bold reverse")
        below = f"{self.num_tokens} tokens"
        if self.num_drafted:
            below += (
                f", {self.num_tokens / self.num_steps:.1f}/step, {100 * self.num_accepted / self.num_drafted:.0f}% "
                "accepted"
            )
        return Panel(text, title=title, subtitle=Text(below), height=height)

    def whole(self) -> Text:
        return Text.assemble(*self.spans, overflow="fold")

    def tail(self, console: Console, width: int, rows: int) -> Text:
        """The last rows of the text, at a cost that does not grow with the text."""
        num_characters, start = 0, len(self.spans)
        while start and num_characters < width * rows:
            start -= 1
            num_characters += len(self.spans[start][0])
        text = Text("\n").join(Text.assemble(*self.spans[start:]).wrap(console, width)[-rows:])
        text.overflow = "fold"
        return text


class _Drawn:
    """A context manager. Drawn on terminals only, again and again; vanishes at the end."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.live = Live(console=console, auto_refresh=False, transient=True) if is_live(console) else None
        self.drawn_at = -REFRESH_S

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def is_due(self) -> bool:
        """Whether the last drawing is old enough for another."""
        return self.live is not None and self.clock() - self.drawn_at >= REFRESH_S

    def draw(self, what: RenderableType) -> None:
        if self.live is not None:
            self.live.update(what, refresh=True)
            self.drawn_at = self.clock()

    def __exit__(self, *raised: object) -> None:
        if self.live is not None:
            self.live.update(Text(""))
            self.live.stop()


class Screen(_Drawn):
    """Call it with every event of the race. Draws at most ten times a second; at the end all marked texts stay."""

    def __init__(
        self, header: Mapping[str, Any], console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(console, clock)
        synthetic = header.get("synthetic", ())
        self.lanes = {
            lane["name"]: LaneView(lane["name"], lane["role"], lane["name"] in synthetic)
            for lane in header["spec"]["lanes"]
        }

    def __call__(self, event: LaneEvent) -> None:
        self.lanes[event.lane].take(event)
        if self.is_due():
            self.draw(self.frame())

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self.live is not None:
            self.console.print(self.whole())

    def frame(self) -> RenderableType:
        """The screen while the race runs: the last rows of every lane."""
        shown = self._shown()
        columns = min(len(shown), self._num_columns())
        rows = max(MIN_ROWS, (self.console.height - NUM_ROWS_AROUND + 2) // -(-len(shown) // columns) - 2)
        width = max(8, self.console.width // columns - 4)
        return self._around([lane.panel(lane.tail(self.console, width, rows), rows + 2) for lane in shown])

    def whole(self) -> RenderableType:
        """All text of every lane."""
        return self._around([lane.panel(lane.whole()) for lane in self._shown()])

    def _shown(self) -> list[LaneView]:
        return [lane for lane in self.lanes.values() if lane.role != PLAIN] or list(self.lanes.values())

    def _num_columns(self) -> int:
        return max(1, self.console.width // MIN_COLUMNS)

    def _around(self, panels: list[Panel]) -> RenderableType:
        grid, columns = Table.grid(expand=True), self._num_columns()
        for _ in panels[:columns]:
            grid.add_column(ratio=1, overflow="fold")
        for start in range(0, len(panels), columns):
            grid.add_row(*panels[start : start + columns])
        parts: list[RenderableType] = [grid]
        parts += [Text(f"{clean(lane.name)}: {lane.speed()}") for lane in self.lanes.values() if lane.role == PLAIN]
        parts.append(legend(any(lane.trees for lane in self.lanes.values())))
        return Group(*parts)


class ProgressLine(_Drawn):
    """A `Progress` that draws one bar on a terminal and nothing anywhere else."""

    stage = ""

    def __call__(self, stage: str, share: float | None) -> None:
        if stage == self.stage and not self.is_due():
            return
        self.stage = stage
        done = 100 * min(1.0, max(0.0, share or 0.0))
        grid = Table.grid(padding=(0, 1))
        percent = Text("..." if share is None else f"{done:.0f}%")
        grid.add_row(percent, ProgressBar(100, done, width=24), Text(clean(stage)))
        self.draw(grid)


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
