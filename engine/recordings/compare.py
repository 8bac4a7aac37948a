"""Whether a repeated race gave the recorded tokens and speeds, in numbers and in a sentence. Standard library only."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from ..analysis.metrics import disturbance, fastest_plain, lane_metrics, race_speedups, ratio_noise
from ..analysis.same import differs_at, part
from ..analysis.verdict_words import NOT_COMPARED
from ..core.events import steps
from ..core.spec import AUTO, BASELINE, PLAIN, LaneSpec
from .recording import OUTPUT_SCHEMA, Recording, failures
from .words import PACKAGES

CIRCUMSTANCES = {"device": ("type", "name", "threads"), "model": ("dtype", "revision")}
SAME_MACHINE = 0.2  # how far, in logarithms, a ratio may move from one day to another on one device, besides its noise


def compare(recorded: Recording, here: Recording) -> dict[str, Any]:
    """Compare each lane's tokens, and its rows of logits if both races were audited. Returns

        {"schema", "same_tokens": bool, "lanes": {name: {"num_tokens", "same_tokens", "counts", "first_difference",
        "rows_compared", "rows_different", "error"}}, "digest": {"recorded", "here", "same"}, "differences": [str],
        "speedups": {name: {"recorded", "here"}}, "speed": str, "sentence": str}

    A lane at the fastest width counts only if that was the same width both times, since another width rounds
    differently. A lane of older files that sampled by rejection at k auto does not count: timing chose its draws.
    A lane that recorded no token is not compared: its `same_tokens` is None. `rows_*` is None without checksums.
    `speedups` are those of speculative lanes, None if unknown; `speed`, also part of the sentence, is what they say
    about the recorded times, "" without any."""
    spec = recorded.spec
    same_plain_width = recorded["widths"]["plain_width"] == here["widths"]["plain_width"]
    whys = {lane.name: _excuse(lane, spec.params.temperature, same_plain_width) for lane in spec.lanes}
    excused = {name: why for name, why in whys.items() if why}
    lanes = {lane.name: _compare_lane(recorded, here, lane, lane.name not in excused) for lane in spec.lanes}
    counted = [lane["same_tokens"] for lane in lanes.values() if lane["counts"]]
    digests = recorded["model"]["digest"], here["model"]["digest"]
    then, now = (race_speedups(race.events, here.spec.lanes) for race in (recorded, here))
    speedups = {name: {"recorded": then[name], "here": now[name]} for name in now}
    result = {
        "schema": OUTPUT_SCHEMA,
        "same_tokens": True in counted and False not in counted,
        "lanes": lanes,
        "digest": {"recorded": digests[0], "here": digests[1], "same": digests[0] == digests[1]},
        "differences": _differences(recorded, here),
        "speedups": speedups,
        "speed": _speed(recorded, here, speedups),
    }
    same_kernels = recorded["versions"].get("kernels") == here["versions"].get("kernels")
    speed = f"; {result['speed']}" if result["same_tokens"] and result["speed"] else ""
    return {**result, "sentence": _sentence(result, excused, same_kernels) + speed}


def _excuse(lane: LaneSpec, temperature: float, same_plain_width: bool) -> tuple[str, str] | None:
    """Why a lane's tokens may differ, and what explains it if they do."""
    if lane.width == "fastest" and not same_plain_width:
        return "ran at another width here", "another rounding"
    if lane.rule == "rejection" and lane.k == AUTO and temperature > 0:
        return "drafts by the clock under rule 'rejection'", "another timing"
    return None


def _compare_lane(recorded: Recording, here: Recording, lane: LaneSpec, counts: bool) -> dict[str, Any]:
    parting = part(*(steps(race.events, lane.name) for race in (recorded, here)))
    then, now, num_rows = parting.tokens_a, parting.tokens_b, parting.num_rows
    cut_short = lane.name in failures(recorded) or recorded.get("stopped", False)
    error = failures(here).get(lane.name)
    position = differs_at(then, now, ("stopped" if cut_short else "finished", "finished"))
    is_same = position is None and (error is None or cut_short)
    return {
        "num_tokens": len(then),
        "same_tokens": None if is_same and not then else is_same,
        "counts": counts,
        "first_difference": None
        if position is None
        else {"position": position, "tokens": [next(iter(ids[position:]), None) for ids in (then, now)]},
        "rows_compared": None if parting.rows_different is None else num_rows,
        "rows_different": parting.rows_different,
        "error": error,
    }


def _differences(recorded: Recording, here: Recording) -> list[str]:
    keys = [(part, key) for part, keys in CIRCUMSTANCES.items() for key in keys]
    pairs = [(f"{part} {key}", recorded[part][key], here[part][key]) for part, key in keys]
    pairs += [(name, *(race["versions"].get(name) for race in (recorded, here))) for name in (*PACKAGES, "kernels")]
    pairs.append(("what runs", *(part.get("runs", {}).get("sentence") for part in (recorded, here))))
    return [f"{name}: {then} there, {now} here" for name, then, now in pairs if then != now]


def _speed(recorded: Recording, here: Recording, speedups: Mapping[str, Mapping[str, float | None]]) -> str:
    """Both ratios of each lane, and next to each other the plain lane's speed, its prefill and the memory's bandwidth.
    On one device the ratios should agree, as far as neither race was disturbed."""
    said, odd, races = [], [], (recorded, here)
    for name, ratio in speedups.items():
        then, now = ratio["recorded"], ratio["here"]
        if then is None or now is None:
            continue
        said.append((f"{name}: " if len(speedups) > 1 else "") + f"recorded {then:.2f}x, here {now:.2f}x")
        pairs = [(steps(race.events, _plain(race, name)), steps(race.events, name)) for race in races]
        if abs(math.log(then / now)) > math.hypot(SAME_MACHINE, *(ratio_noise(*pair) or 0.0 for pair in pairs)):
            odd.append(name)
    if not said:
        return ""
    figures = [_figures(race, _plain(race, next(iter(speedups)))) for race in races]
    plain = ", ".join(
        f"{name} {then} and {now} {unit}"
        for (name, then, unit), (_, now, _) in zip(*figures, strict=True)
        if (then, now) != ("?", "?")
    )
    if recorded["device"] != here["device"]:
        end = "on another device, which may differ; times are not proven"
    elif disturbed := [
        which
        for which, race in zip(("there", "here"), races, strict=True)
        if disturbance(race.events, race.get("waited_share"))
    ]:
        end = f"the machine was disturbed {' and '.join(disturbed)}; times are not proven"
    else:
        end = "more than noise explains, on the same device" if odd else "times are not proven"
    return f"{', '.join(said)} ({plain}); {end}"


def _figures(race: Recording, lane: str) -> list[tuple[str, str, str]]:
    """(name, value or "?", unit) of what a file claims about its machine."""
    numbers, memory = lane_metrics(race.events, lane), race.get("roofline") or {}
    bytes_per_s = memory.get("bandwidth_bytes_per_s")
    return [
        ("plain", "?" if numbers.tokens_per_s is None else f"{numbers.tokens_per_s:.1f}", "tokens/s"),
        ("its prefill", "?" if numbers.prefill_s is None else f"{numbers.prefill_s:.2f}", "s"),
        ("memory", "?" if bytes_per_s is None else f"{bytes_per_s / 1e9:.0f}", "GB/s"),
    ]


def _plain(race: Recording, lane: str) -> str:
    return fastest_plain(race.events, lane, race.spec.first(PLAIN), race.spec.first(BASELINE))


def _sentence(result: Mapping[str, Any], excused: Mapping[str, tuple[str, str]], same_kernels: bool) -> str:
    digest = result["digest"]
    weights = ""
    if not digest["same"]:
        weights = f"; the weights are not the recorded ones (digest {digest['recorded']} there, {digest['here']} here)"
    counted = {name: lane for name, lane in result["lanes"].items() if lane["counts"]}
    if parted := [_how_it_parted(name, lane) for name, lane in counted.items() if lane["same_tokens"] is False]:
        kernels = "" if same_kernels else "; different kernels or tiles ran here, which may round differently"
        return "; ".join(parted) + weights + kernels
    unknown = [name for name, lane in counted.items() if lane["same_tokens"] is None]
    known = [name for name in counted if name not in unknown]
    nothing = f"{NOT_COMPARED}: the recording has no token of {_listed(unknown)}"
    if not known:
        return nothing + weights
    sentence = (
        f"same tokens: this machine reproduces the recorded tokens in {_listed(known)}, "
        f"{sum(lane['num_tokens'] for lane in counted.values())} in total"
    )
    if audited := [lane for lane in counted.values() if lane["rows_compared"] is not None]:
        compared, different = (sum(lane[key] for lane in audited) for key in ("rows_compared", "rows_different"))
        sentence += f"; {different} of {compared} rows of logits differ" + (
            " in their bits: different arithmetic, same tokens" if different else ", bit for bit"
        )
    else:
        sentence += "; the bits of the logits were not recorded (race --audit records them)"
    for name, (why, cause) in excused.items():
        same = result["lanes"][name]["same_tokens"]
        outcome = "its tokens are still the same" if same else f"its tokens differ, which {cause} explains"
        outcome = "the recording has none of its tokens" if same is None else outcome
        sentence += f"; lane {name!r} {why} and is not counted: {outcome}"
    return sentence + (f"; {nothing}" if unknown else "") + weights


def _how_it_parted(name: str, lane: Mapping[str, Any]) -> str:
    if lane["first_difference"] is None:
        return f"lane {name!r} failed here: {lane['error']}"
    position, (then, now) = lane["first_difference"]["position"], lane["first_difference"]["tokens"]
    words = f"token {then} there, token {now} here"
    if None in (then, now):
        words = "it ended there but continues here" if then is None else "it continued there but ends here"
    return f"different: lane {name!r} diverges from the recording at position {position}: {words}" + (
        f" ({lane['error']})" if lane["error"] else ""
    )


def _listed(names: Collection[str]) -> str:
    return "lanes " + ", ".join(repr(name) for name in names) if names else "no lane"
