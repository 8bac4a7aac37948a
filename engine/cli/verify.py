"""The command verify: a recorded race, run again. `compare` is pure; both sides are recordings."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Mapping
from typing import Any

from ..errors import RaceError, UsageError
from ..events import Prompt, steps
from ..exactness.verdict import part
from ..recordings import recording as recordings
from ..spec import AUTO, SERVER, LaneSpec
from ..text import check_prompt_text
from .arguments import Command, option
from .hold import hold_race
from .options import DEVICE, FILE, JSON, TARGET, set_threads
from .output import console, print_json

CIRCUMSTANCES = (
    ("device", "type"),
    ("device", "name"),
    ("device", "threads"),
    ("model", "dtype"),
    ("model", "revision"),
)
PACKAGES = ("torch", "transformers")


def compare(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """What became of each lane's tokens, and of its rows of logits where both were audited.

    {"schema", "same_tokens": bool, "lanes": {name: {"num_tokens", "same_tokens", "counts", "first_difference",
    "rows_compared", "rows_different", "error"}}, "digest": {"recorded", "here", "same"}, "differences": [str],
    "sentence": str}. A lane that asked for the fastest width counts only where it ran at the same width both times: the
    fastest may be another one today, and another width is another rounding. Nor does a lane count that samples by
    rejection as many drafts as pay: which of its draws decide depends on time. Lanes on servers are left out. `rows_*`
    is None without checksums."""
    spec = recordings.spec_of(recorded).without_servers()
    same_plain_width = recorded["widths"]["plain_width"] == here["widths"]["plain_width"]
    excused = {
        lane.name: why for lane in spec.lanes if (why := _excuse(lane, spec.params.temperature, same_plain_width))
    }
    lanes = {lane.name: _compare_lane(recorded, here, lane, lane.name not in excused) for lane in spec.lanes}
    digests = recorded["model"]["digest"], here["model"]["digest"]
    result = {
        "schema": recordings.OUTPUT_SCHEMA,
        "same_tokens": all(lane["same_tokens"] for lane in lanes.values() if lane["counts"]),
        "lanes": lanes,
        "digest": {"recorded": digests[0], "here": digests[1], "same": digests[0] == digests[1]},
        "differences": _differences(recorded, here),
    }
    same_kernels = recorded["versions"].get("kernels") == here["versions"].get("kernels")
    servers = [lane.name for lane in recordings.spec_of(recorded).lanes if lane not in spec.lanes]
    told = f"; {_listed(servers)} ran on servers, which cannot be run again here" if servers else ""
    return {**result, "sentence": _sentence(result, excused, same_kernels) + told}


def _excuse(lane: LaneSpec, temperature: float, same_plain_width: bool) -> tuple[str, str] | None:
    """Why a lane's tokens need not come again, and what then explains that they did not."""
    if lane.width == "fastest" and not same_plain_width:
        return "ran at another width here", "another rounding"
    if lane.rule == "rejection" and lane.k == AUTO and temperature > 0:
        return "drafts by the clock under rule 'rejection'", "another timing"
    return None


def _compare_lane(recorded: Mapping[str, Any], here: Mapping[str, Any], lane: LaneSpec, counts: bool) -> dict[str, Any]:
    parting = part(*(steps(recordings.events_of(each), lane.name) for each in (recorded, here)))
    then, now, position, num_rows = parting.tokens_a, parting.tokens_b, parting.first, parting.num_rows
    cut_short = lane.name in recordings.failures(recorded) or recorded.get("stopped", False)
    error = recordings.failures(here).get(lane.name)
    if position is None and len(then) != len(now) and not (cut_short and len(then) < len(now)):
        position = num_rows
    return {
        "num_tokens": len(then),
        "same_tokens": position is None and (error is None or cut_short),
        "counts": counts,
        "first_difference": None
        if position is None
        else {"position": position, "tokens": [next(iter(ids[position:]), None) for ids in (then, now)]},
        "rows_compared": None if parting.rows_different is None else num_rows,
        "rows_different": parting.rows_different,
        "error": error,
    }


def _differences(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    pairs = [(f"{part} {key}", recorded[part][key], here[part][key]) for part, key in CIRCUMSTANCES]
    pairs += [
        (package, recorded["versions"].get(package), here["versions"].get(package))
        for package in (*PACKAGES, "kernels")
    ]
    pairs.append(("what runs", *(part.get("runs", {}).get("sentence") for part in (recorded, here))))
    return [f"{name}: {then} there, {now} here" for name, then, now in pairs if then != now]


def _sentence(result: Mapping[str, Any], excused: Mapping[str, tuple[str, str]], same_kernels: bool) -> str:
    digest = result["digest"]
    weights = (
        ""
        if digest["same"]
        else f"; the weights are not the recorded ones (digest {digest['recorded']} there, {digest['here']} here)"
    )
    counted = {name: lane for name, lane in result["lanes"].items() if lane["counts"]}
    if parted := [_how_it_parted(name, lane) for name, lane in counted.items() if not lane["same_tokens"]]:
        kernels = "" if same_kernels else "; other kernels or other tiles ran here than there: they may round otherwise"
        return "; ".join(parted) + weights + kernels
    sentence = (
        f"same tokens: this machine gets the recorded tokens in {_listed(counted)}, "
        f"{sum(lane['num_tokens'] for lane in counted.values())} in all"
    )
    if audited := [lane for lane in counted.values() if lane["rows_compared"] is not None]:
        compared, different = (sum(lane[key] for lane in audited) for key in ("rows_compared", "rows_different"))
        sentence += f"; {different} of {compared} rows of logits differ" + (
            " in their bits: another arithmetic, the same tokens" if different else ", bit for bit"
        )
    else:
        sentence += "; the bits of the logits were not recorded (race --audit records them)"
    for name, (why, cause) in excused.items():
        same = result["lanes"][name]["same_tokens"]
        told = "its tokens are the same all the same" if same else f"its tokens differ, which {cause} explains"
        sentence += f"; lane {name!r} {why} and is not counted: {told}"
    return sentence + weights


def _how_it_parted(name: str, lane: Mapping[str, Any]) -> str:
    if lane["first_difference"] is None:
        return f"lane {name!r} failed here: {lane['error']}"
    position, (then, now) = lane["first_difference"]["position"], lane["first_difference"]["tokens"]
    words = (
        f"token {then} there, token {now} here"
        if None not in (then, now)
        else "it ended there and goes on here"
        if then is None
        else "it went on there and ends here"
    )
    return f"different: lane {name!r} parts from the recording at position {position}: {words}" + (
        f" ({lane['error']})" if lane["error"] else ""
    )


def _listed(names: Collection[str]) -> str:
    return "lanes " + ", ".join(repr(name) for name in names) if names else "no lane"


def _verify(options: Namespace) -> int:
    recorded = recordings.read(options.file)
    if recorded["device"]["type"] == SERVER:
        raise UsageError("this is a race of servers: they cannot be run again here, so nothing can be verified")
    asked = recorded["prompt"]
    prompt = Prompt(asked["text"], tuple(asked["token_ids"]), asked.get("chat", False))
    check_prompt_text(prompt.text)
    on_cpu = recorded["device"]["type"] == "cpu"
    if on_cpu and recorded["device"]["threads"]:
        set_threads(min(recorded["device"]["threads"], os.cpu_count() or 1))
    device = "cpu" if on_cpu and options.device == "auto" else options.device
    here = hold_race(
        options.target or recorded["model"]["name"],
        recorded["model"]["dtype"],
        device,
        recordings.spec_of(recorded).without_servers(),
        lambda tokenizer: prompt,
    )
    result = compare(recorded, here)
    if options.json:
        print_json(result)
    else:
        from rich.text import Text

        from .terminal import clean

        out = console()
        if result["same_tokens"]:
            out.print(Text(clean(result["sentence"]), "bold"))
        for difference in result["differences"]:
            out.print(Text(clean(difference)))
    if not result["same_tokens"]:
        raise RaceError(result["sentence"])
    return 0


VERIFY = Command(
    (
        FILE,
        option(
            *TARGET.names,
            **{**TARGET.details, "help": "where the recorded model is on this machine (default: where it was)"},
        ),
        DEVICE,
        JSON,
    ),
    _verify,
    "A recording made on a CPU runs again with as many threads, as far as this machine has them. "
    "Exit status: 0 the same tokens; 1 other tokens, or a lane failed; 2 the file or the model cannot be used; 130 "
    "interrupted.",
)
