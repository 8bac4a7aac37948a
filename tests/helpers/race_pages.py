"""Races to look at, pages that show them without a server, and what to ask such a page."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import regex

from app.jobs.frames import frame_json
from app.web import RACE_VIEW_CSS, RACE_VIEW_JS, RACE_VIEW_TEMPLATE
from engine.analysis.metrics import lane_metrics, race_speedup
from engine.analysis.verdict_words import PAYS, VERDICTS, capital
from engine.core.events import Step
from engine.core.spec import SPECULATIVE, RaceSpec, SamplingParams, lanes_of
from engine.recordings.claims import judged
from tests.helpers.races import events_of, random_race, spec_of

TEXT = """[
  {"name": "Ada Lovelace", "born": 1815, "city": "London", "field": "mathematics"},
  {"name": "Grace Hopper", "born": 1906, "city": "New York", "field": "compilers"},
  {"name": "Alan Turing", "born": 1912, "city": "London", "field": "computability"},
  {"name": "Barbara Liskov", "born": 1939, "city": "Los Angeles", "field": "languages"},
  {"name": "Edsger Dijkstra", "born": 1930, "city": "Rotterdam", "field": "algorithms"}
]
"""
HOSTILE = [
    "${window.ran=1}", "{{constructor}}", "`+(window.ran=1)+`", "</script><script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>", "\u202eevil\u202c", "a\u200bb", "\ufeff", "👩\u200d", "\U0001f680",
    "👩\u200d💻", "W" * 10_000, "\x00\x07\x1b[31m", "\r\n", "\t\n\n", "é\u0301\u0301\u0301", "\u2028", "مرحبا",
    "\\u003cb>", "", "'\"&amp;", "javascript:alert(1)", "__proto__", "\U000e0041",
]  # fmt: skip

TOKENS = """() => [...document.querySelectorAll('.pf-text [data-step]')].map(step => [
    step.dataset.lane, +step.dataset.step, [...step.querySelectorAll('[data-token-id]')].map(token => [
        token.dataset.kind, +token.dataset.tokenId, token.textContent])])"""
STATE = "() => JSON.parse(JSON.stringify(window.photofinish.state))"
SLIDE = "value => { const k = document.querySelector('[data-ref=whatIfK]'); k.value = value; \
k.dispatchEvent(new Event('input')); }"  # moves the slider of What if to a place
SAME, PAID = capital(VERDICTS["identical_bits"].head), capital(PAYS["pays"])  # as the page says them
SETTLED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def race_over(
    words: Sequence[str],
    seed: int = 1,
    hit: float = 0.8,
    k: int | str = 7,
    audit: bool = True,
    drafters: Mapping[str, str] = MappingProxyType({SPECULATIVE: "ngram"}),
) -> dict[str, Any]:
    """A random race over `words`. drafters: of each lane that drafts, by its name."""
    known = list(dict.fromkeys(words))
    lanes = lanes_of((name, drafter, k) for name, drafter in drafters.items())
    spec = RaceSpec(lanes, SamplingParams(max_new_tokens=len(words)), audit)
    how = {"pieces": known.__getitem__, "vocab_size": len(known), "hit": hit}
    return random_race(random.Random(seed), spec, [known.index(word) for word in words], **how)


def words_of(text: str, repeat: int = 1) -> list[str]:
    """Something like tokens: a word with its space, a sign, a newline."""
    return re.findall(r" ?\w{1,6}|\n|[^\w\n]{1,2}", text * repeat)


SHORT = race_over(words_of(TEXT)[:60], seed=5)


def frames(
    recorded: dict[str, Any],
    race_id: str = "r1",
    every: int = 3,
    ribbon: str = "",
    state: str = "finished",
    status: str = "The race is over.",
) -> list[dict[str, Any]]:
    """The frames a server would send of this race: `every` events each, and the whole recording in the last."""
    recorded = rejudged(recorded)
    events, out = recorded["events"], list[dict[str, Any]]()
    header = {key: value for key, value in recorded.items() if key not in ("schema", "format", "events", "verdicts")}
    blank = {"header": None, "events": [], "recording": None, "complete": False}

    def add(state: str, text: str, share: float | None = None, **more: Any) -> None:
        progress = {"state": state, "status": {"text": text, "share": share}}
        out.append({"race": race_id, "ribbon": ribbon, "seq": len(out), **blank, **progress, **more})

    add("preparing", "Measuring what each width costs.", 0.4, header=header)
    for start in range(0, len(events), every):
        add("running", "Racing.", events=events[start : start + every])
    whole = json.dumps(recorded, ensure_ascii=False)
    add(state, status, recording=whole, complete=True)
    return out


def numbers_at(recorded: dict[str, Any], t: float) -> dict[str, Any]:
    """engine.analysis.metrics over the steps that were over at lane time t, without its lists: the page has none."""
    events = [e for e in events_of(recorded) if not isinstance(e.event, Step) or e.clock_s <= t + 1e-9]
    whole = {lane["name"]: asdict(lane_metrics(events, lane["name"])) for lane in recorded["spec"]["lanes"]}
    metrics = {
        name: {key: value for key, value in numbers.items() if not isinstance(value, tuple)}
        for name, numbers in whole.items()
    }
    shown = next(lane["name"] for lane in recorded["spec"]["lanes"] if lane["role"] == "speculative")
    return {"metrics": json.loads(json.dumps(metrics)), "speedup": race_speedup(events, shown)}


def rounded(value: Any) -> Any:
    """The same with nine digits of every number."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, (int, float)) else value


# A page that runs the race view as gr.HTML does, without gradio: element, trigger, props, server, upload and watch are
# arguments of its program.
PAGE_HTML = f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>race view</title>
<style>body{{margin:0;padding:16px;background:#fbfaf7}}</style><style>{RACE_VIEW_CSS}</style>
<body><div id="host">{RACE_VIEW_TEMPLATE}</div>
<script type="application/json" id="program">{json.dumps(RACE_VIEW_JS).replace("<", chr(92) + "u003c")}</script>
<script>const props = {{value: null}}, program = JSON.parse(document.getElementById("program").textContent);
new Function("element", "trigger", "props", "server", "upload", "watch", program)(
  document.getElementById("host"), () => 0, props, {{}}, null, () => 0);
window.photofinish = document.querySelector(".pf").photofinish;</script>"""


def rejudged(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A recording that a test has changed, with what may be said of it now."""
    return {**recorded, **judged(recorded, spec_of(recorded), events_of(recorded))}


def feed(page: Any, recorded: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    sent = frames(recorded, **options)
    show(page, sent)
    return sent


def show(page: Any, sent: list[dict[str, Any]]) -> None:
    page.evaluate("all => all.forEach(frame => window.photofinish.frame(frame))", [frame_json(frame) for frame in sent])
    page.evaluate(SETTLED)


def waiting(left: list[int | None], seq: int = 0) -> list[dict[str, Any]]:
    """Frames of a race that waits so many seconds."""
    text = "2 races ahead of you."
    blank = {"race": "next", "ribbon": "", "header": None, "events": [], "recording": None}
    statuses = [{"text": text, "share": None, "left_s": seconds} for seconds in left]
    return [{**blank, "seq": seq + i, "state": "waiting", "status": status} for i, status in enumerate(statuses)]


def opened(page: Any, recording: Mapping[str, Any], tab: str = "") -> None:
    """Open the recording as a file, without a server, and a tab of the page."""
    text = json.dumps(rejudged(recording), ensure_ascii=False)
    assert page.evaluate("text => window.photofinish.open(text, 'race.json')", text), words(page, "alertText")
    if tab:
        page.evaluate("tab => document.getElementById(`pf-tab-${tab}`).click()", tab)
    page.evaluate(SETTLED)


def expected(
    recorded: dict[str, Any], until: float = float("inf"), lanes: tuple[str, ...] = ("baseline", "speculative")
) -> list[list[Any]]:
    """What the DOM must hold, worked out from the events alone."""
    out = []
    for lane in lanes:
        written: list[Any] = []
        for e in recorded["events"]:
            if e["lane"] == lane and e["type"] == "step" and e["clock_s"] <= until + 1e-9:
                n, size = e["num_accepted"], e.get("num_drafted", len(e["drafted"]))
                lost_ids = _struck(e)
                refuted = lost_ids or n < e.get("num_drafted", 0)
                own = "plain" if not size else "correction" if refuted else "bonus"
                kept = [["accepted", t, p] for t, p in zip(e["token_ids"][:n], e["pieces"][:n], strict=True)]
                if n and "num_drafted" in e and not any(e["pieces"][1:]):
                    kept[0][0] = "together"  # a server's step whose text is known as a whole alone
                lost = [["rejected", e["drafted"][i], e["drafted_pieces"][i]] for i in lost_ids]
                target = [[own, t, p] for t, p in zip(e["token_ids"][n:], e["pieces"][n:], strict=True)]
                out.append([lane, e["index"], kept + lost + target])
                written += kept + target
        before = ["", 0, ""]
        for token in written:  # a character that several tokens write is drawn in the first of them
            whole, start = before[2] + token[2], len(before[2])
            if start and token[2] >= "\u0300":
                end = next(end for end in accumulate(map(len, regex.findall(r"\X", whole))) if end >= start)
                before[2], token[2] = whole[:end], whole[end:]
            before = token if token[2] else before
    return out


def _struck(e: dict[str, Any]) -> list[int]:
    """What was dropped at the end of the accepted tokens, by number: of a tree its likeliest path."""
    rows, row = e.get("parents", range(len(e["drafted"]))), 0
    for token in e["token_ids"][: e["num_accepted"]] if e["drafted"] else ():
        row = next(i + 1 for i, of in enumerate(rows) if of == row and e["drafted"][i] == token)
    path: list[int] = []
    while after := [i for i, of in enumerate(rows) if of == row]:
        path.append(max(after, key=e["chances"].__getitem__) if "chances" in e else after[0])
        row = path[-1] + 1
    return path


def words(page: Any, ref: str) -> str:
    return page.text_content(f"[data-ref={ref}]")
