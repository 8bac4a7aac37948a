"""A race as one file that plays in any browser: the player, with what the page says about the race's speed."""

from engine.recordings.recording import Recording

from ..figures.why import why
from ..web.player.player import player
from .sentences import chart_head, chart_sentence, chart_table


def exported(recording: Recording) -> str:
    """The page for this recording. The figures of the tab Why are in it as sentences and tables: drawing them takes a
    library of several megabytes."""
    parts = (
        f"<section>{chart_head(chart.title)}{chart_sentence(chart.sentence)}"
        f"{chart_table(chart.title, chart.table)}</section>"
        for chart in why(recording)
    )
    return player(recording, f'<div class="player-why">{"".join(parts)}</div>')
