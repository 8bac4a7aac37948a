"""What a study of prompts says, in sentences that page and terminal share. Standard library only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...analysis.verdict_words import NOT_AS_IT_IS, ONE_TEXT, PAYS, THRESHOLD, capital
from ...core.spec import SERVER
from ...drafters import DRAFTERS, draft_words, label
from ...drafters.served import is_served
from ...recordings.words import causes
from .rows import Row, outcome

LEAST = 3  # prompts needed for a verdict
NO_RACE = "No prompt's race ended, so there is nothing to judge."
TO_BE_CERTAIN = "To be certain: more prompts, on a machine with nothing else to do."
WITH_ONE_USER = " with one user"  # prompts reach servers one at a time


def is_lane(drafter: str) -> bool:
    """Whether this is what rows call a server's lane, which drafts as the server likes."""
    return drafter.partition(":")[0] not in DRAFTERS


def says(report: Mapping[str, Any], rows: Sequence[Row], temperature: float | None) -> dict[str, Any]:
    """The sentences of a report (see `pays.report`). temperature: of the answers; None if it is not known.

    verdict: by what a check-up of the servers said about the texts that differ: "" (nothing), "rounding" (all differ by
        rounding) or "fault".
    then: what would make it clearer or, if it is clear, the share of time that it saves; here: what it does not cover.
    texts: whether servers wrote the same texts; "" for lanes on this machine. causes: why they may differ; "" if they
        do not."""
    best, engine, servers = report["best"], report["engine"], [row for row in rows if is_lane(row.drafter)]
    unclear = report["doubtful"] or report["verdict"] == "unclear"
    here = [ONE_TEXT] if best and best["k"] is not None else []
    if engine and engine["median_speedup"] is not None:
        here.append(f"This engine alone: {_at_median(engine)}.")
    texts, differ = _texts([row for row in servers if not row.fault])
    return {
        "verdict": {check: _verdict(report, check) for check in ("", "rounding", "fault")},
        "then": TO_BE_CERTAIN if unclear or not best else _saved(best),
        "here": " ".join(here),
        "texts": texts,
        "causes": causes(temperature, in_batches=False) if differ else "",
    }


def peer_says(peer: Mapping[str, Any]) -> str:
    """One of `peers` of a report in a sentence, without its full stop."""
    parts = []
    if peer["median_speed"] is not None:
        parts.append(f"{peer['median_speed']:.2f} of plain's speed (median of {peer['num_timed']})")
    if peer["num_compared"]:
        parts.append(f"the same tokens in {peer['num_same']} of {peer['num_compared']}")
    if peer["fault"]:
        parts.append(f"it failed in {peer['num_prompts'] - peer['num_timed']}, first: {peer['fault']}")
    return f"transformers' {peer['name']}: {', '.join(parts)}"


def _verdict(report: Mapping[str, Any], check: str) -> str:
    best, verdict = report["best"], report["verdict"]
    if best is None:
        return capital(PAYS[verdict].format(""))
    median, users = _at_median(best), WITH_ONE_USER * (best["k"] is None)
    if check == "fault":
        return NOT_AS_IT_IS.format(median)
    others, harmless = best["num_other_texts"], check == "rounding"
    differ = "one text differs" if others == 1 else f"{others} texts differ"
    texts = f"; {differ}, by rounding, as far as the check-up saw" if harmless else f", but {differ}"
    texts *= others > 0
    if not report["doubtful"]:
        # Nobody should ship what may write something else.
        word = "faster" if verdict == "ship" and others and not harmless else verdict
        return f"{capital(PAYS[word].format(users))}: {median}{texts}"
    without = best["without"]
    num, same = without["num_prompts"], _times(without["median_speedup"]) == _times(best["median_speedup"])
    rest = "every text repeats itself, or its race was disturbed"
    if num:
        rest = (
            f"{_times(without['median_speedup'])} on {'only' if same else 'the'} {num} prompt{'s' * (num != 1)} whose "
            "text does not repeat itself and whose race was not disturbed"
        )
    return f"{capital(PAYS['uncertain'].format(users))}: {median}, {'and' if num and same else 'but'} {rest}{texts}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _lane_words(drafter: str) -> str:
    return "speculation" if drafter == SERVER else drafter


def _at_median(option: Mapping[str, Any]) -> str:
    """`n-gram (copies earlier text), k = 5, 1.87x at the median (computed)`."""
    drafter, k = option["drafter"], option["k"]
    how = "measured" if option["measured"] else "computed"
    how += " by time only" * (k is None and option["by_time_only"])
    what = _lane_words(drafter) if k is None else draft_words(drafter, k)
    return f"{what}, {_times(option['median_speedup'])} at the median ({how})"


def _saved(best: Mapping[str, Any]) -> str:
    time = "machine time" if best["k"] is not None else "time per answer after its first text"
    share = f"{100 * abs(best['saving']):.1f} %"
    change = "as much" if share == "0.0 %" else f"{share} {'less' if best['saving'] > 0 else 'more'}"
    return f"{change} {time} at the median prompt."


def _texts(rows: Sequence[Row]) -> tuple[str, bool]:
    """Whether servers wrote the same texts, and whether any differ."""
    compared = [row for row in rows if row.identical is not None]
    if not compared:
        return "", False
    num_same = sum(bool(row.identical) for row in compared)
    same = f"Same text: {num_same} of {len(compared)} answer{'s' * (len(compared) != 1)}."
    return same, num_same < len(compared)


def no_server(drafters: Sequence[str], target: str) -> str:
    """Why there is nothing that a server can run."""
    if any(is_served(target, drafter) for drafter in drafters):
        return NO_RACE
    raced = ", ".join(map(label, drafters))
    return f"No server runs what was raced here ({raced}). Add n-gram to see what a server could do."


def reason(rows: Sequence[Row], best: Mapping[str, Any], verdict: str, doubtful: bool) -> str:
    """Why the verdict is what it is. rows: of its drafter, at least one with a speed-up."""
    k, num = best["k"], best["num_prompts"]
    if num < LEAST:
        return f"A verdict takes at least {LEAST} measured prompts; there are {num}."
    where = {"ship": "above", "do not ship": "below", "unclear": "on both sides of"}[verdict]
    low, high = best["interval"]
    what = _lane_words(best["drafter"]) if k is None else f"at k = {k}, {label(best['drafter'])}"
    first = (
        f"{capital(what)} is {'measured' if best['measured'] else 'computed'}"
        f"{', by time only since its server reports no drafts,' * best['by_time_only']} at "
        f"{_times(best['median_speedup'])} the speed of plain decoding at the median of {num} prompts; the 95 % "
        f"interval, {low:.2f} to {high:.2f}, lies {where} {THRESHOLD}"
    )
    outcomes = Counter(outcome(row, k) for row in rows)
    parts = [f"{outcomes['gains']} faster, {outcomes['even']} within the noise, {outcomes['loses']} slower"]
    loops, disturbed = sum(row.loops for row in rows), sum(row.disturbed for row in rows)
    if num_other := best["num_other_texts"]:
        parts.append(f"{num_other} of {best['num_compared']} texts differ from plain decoding's")
    if loops:
        parts.append(f"{loops} of {len(rows)} texts repeat themselves, which is easy to guess")
    if disturbed:
        parts.append(f"{disturbed} of {len(rows)} races were disturbed")
    if loops or disturbed:
        without = best["without"]
        median = _times(without["median_speedup"]) if without["median_speedup"] else "nothing"
        other_verdict = f", and the verdict would be: {without['verdict']}" if doubtful else ""
        parts.append(f"without them: {median}{other_verdict}")
    return f"{first}. {'; '.join(parts)}."
