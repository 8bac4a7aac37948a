"""The result of a study of servers in a file, one JSON object. Standard library only."""

from typing import Any

from ...core.errors import UsageError, short
from ...core.values import items, members, number
from ...strict_json import COUNT, NAME, NUMBER, TEXT, AtMost, IfThere, Maybe, fits, parse
from ..prompts.study_file import MAX_BYTES
from .level_metrics import FORMAT, HIGHER
from .study import MAX_OTHER, Row

# Limits of an opened result: the number of lanes, the users of a level, and the size of a metric.
MAX_LANES, MAX_USERS, MOST = 2, 1000, 1e12
SAID = ("model", "created", "circumstances", "repeats")
ROW = {
    "lane": NAME,
    "acceptance_from": Maybe(NAME),
    "errors": members("an object of counts", COUNT),
    "fault": Maybe(TEXT),
    "wall_s": NUMBER,
    **dict.fromkeys(("concurrency", "num_requests", "num_errors", "num_output_tokens"), COUNT),
    **{metric: Maybe(NUMBER) for metric in HIGHER},
    "rate_error": IfThere(Maybe(number(0, 10))),
    **dict.fromkeys(
        ("num_compared", "num_same_text", "num_textless", "num_buffered", "num_short"), IfThere(Maybe(COUNT))
    ),
    "answer_p95_s": IfThere(Maybe(NUMBER)),
    "acceptance_doubt": IfThere(Maybe(TEXT)),
    "other_prompts": IfThere(Maybe(items(f"at most {MAX_OTHER} counts", COUNT, range(MAX_OTHER + 1)))),
}  # the shape of a row


def open_load(text: str) -> tuple[list[Row], list[str], dict[str, Any]]:
    """What `level_metrics.report` takes, of the study in a result. Raises UsageError."""
    whole = parse(text.encode("utf-8", "surrogatepass"), MAX_BYTES)
    fields = {**dict.fromkeys(SAID, TEXT), "temperature": IfThere(Maybe(NUMBER))}
    fits(whole, {"lanes": AtMost(MAX_LANES, NAME), "levels": [ROW], "said": fields})
    if whole.get("format") != FORMAT:
        raise UsageError(f"its format is {short(whole.get('format'))}, not {FORMAT!r}")
    rows, lanes = whole["levels"], whole["lanes"]
    keys = {(row["lane"], row["concurrency"]) for row in rows}
    is_known = all(lane in lanes and 1 <= num <= MAX_USERS for lane, num in keys)
    if not rows or not is_known or len(keys) < len(rows) or len(set(lanes)) < len(lanes):
        raise UsageError(f"it must have a level, and each lane and level once, of 1 to {MAX_USERS} users in its lanes")
    for row in rows:
        same, compared = row.get("num_same_text"), row.get("num_compared")
        if (same is None) != (compared is None) or (same or 0) > (compared or 0):
            raise UsageError(f"num_same_text must be at most num_compared, {short(compared)}, not {short(same)}")
        for name in HIGHER:
            if row[name] and not 1 / MOST <= row[name] <= MOST:
                raise UsageError(f"{name} must be 0 or from {1 / MOST:g} to {MOST:g}, not {short(row[name])}")
    return rows, lanes, {name: whole["said"].get(name) for name in fields}
