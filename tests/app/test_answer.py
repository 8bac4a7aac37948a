"""The answer of a race: its verdict, length, money and command are of one drafter, at one length and speed."""

import json
import random
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from engine.analysis.metrics import lane_metrics
from engine.analysis.verdict_words import PAYS, THRESHOLD, capital
from engine.core.spec import BASELINE, PLAIN, SPECULATIVE
from engine.drafters import DRAFTERS, DRAWN, GREEDY, RULES, label, ruled, short_label
from engine.drafters.served import is_served, served_parts
from engine.recordings.claims import cautions_of
from engine.recordings.recording import Recording
from engine.recordings.words import scope
from engine.what_if.judged import what_if_of
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import MOST, a_race, events_of, on_servers, spec_of, with_tables
from tests.helpers.trained import text_of

MODULES = ("tabs/answer.js", "tabs/money.js", "tabs/production.js", "tabs/whatif.js")
Call = Callable[..., Any]
TARGETS = ("gemma-3-270m", "Qwen/Qwen3-8B", "google/gemma-3-1b-it", "random:Qwen/Qwen3-8B", "./folder")
DRAFTS = ("ngram", "ngram:2", "eagle3", "eagle3:owner/head", "eagle3:RedHatAI/x-speculator.eagle3", "dflash:owner/head",
          "draft_model:owner/small", "hybrid:ngram+eagle3", "hybrid:ngram+eagle3:owner/head", "synthetic:0.8",
          "hybrid:ngram:4+draft_model:owner/small", "eagle3:~/head")  # fmt: skip
ANSWER = """(recording, choose) => {
    const { events, spec: { lanes } } = recording, race = new Race(events);
    const first = firstByRole(lanes), [, lane] = sides(lanes);
    const whatIf = recording.tables && recording.costs ? new WhatIf(recording, race, first, lane) : null;
    const pick = all => all && choose !== null ? all.options[choose % all.options.length] : null;
    const chosen = pick(answerOf(recording, race, first, { whatIf }));
    const found = answerOf(recording, race, first, { whatIf, chosen });
    if (!found) return null;
    const inputs = { dollars: null, tokens: 1e7, hours: 24, goalTokens: 200, goalS: 2 };
    const { steps, ...subject } = found.subject, made = productionOf(recording, found.subject);
    const device = recording.device.type === "server" ? "server" : "cpu";
    return { subject, plain: found.plain.tokensPerS, tone: found.tone, caution: found.caution, isChosen: found.isChosen,
        isEvidence: found.isEvidence, nothing: nothingWords(found),
        says: verdictWords(found), others: othersWords(found), rows: moneyRows(found, inputs, device),
        commands: made.servers.map(({ name, command }) => [name, command]).filter(([, command]) => command) };
}"""


def a_recording(seed: int) -> dict[str, Any]:
    """A race: of chains, trees or automatic; with tables, more lanes, or on servers; stopped; a text that loops."""
    rng = random.Random(seed)
    drafter, k = rng.choice(DRAFTS), rng.randrange(1, 8)
    words = words_of("one two three four " * 12 if rng.random() < 0.15 else TEXT)[: rng.randrange(12, 70)]
    shape = rng.choice(("plain", "tables", "tables", "trees", "trees", "own table", "lanes", "servers", "rules"))
    names = ("one", "two") if shape == "lanes" else (SPECULATIVE,)
    drafters = {name: drafter if name == SPECULATIVE else rng.choice(DRAFTS) for name in names}
    race = race_over(words, seed=seed, hit=rng.choice((0.1, 0.5, 0.9)), k=k, drafters=drafters)
    if shape == "tables":
        race = with_tables(race, rng)
    elif shape in ("own table", "rules"):
        race = with_tables(race, rng, drafter)
        if shape == "rules":  # the race samples; an older one does not tell what servers draft
            race["spec"]["params"]["temperature"] = 0.8
            if drafter[:3] not in ("ngr", "syn") and rng.random() < 0.7:
                race["tables"][drafter + GREEDY] = with_tables(race, rng, drafter)["tables"][drafter]
                if drafter[:6] != "hybrid":
                    race["drawn"] = {drafter: {"3": {"steps": len(words) / 2.5, "seconds": len(words) / 60,
                                                     "block_steps": len(words) / 2.75}}}  # fmt: skip
    elif shape == "trees":
        race = with_tables(race, rng, "ngram", f"{drafter}@tree")
        race["spec"]["lanes"][-1]["k"] = rng.choice(("auto", "tree:4"))
    elif shape == "servers":
        race = on_servers(race)
        if seed % 2:
            race["verdicts"] = {race["spec"]["lanes"][-1]["name"]: {"kind": "other_text"}}
    if "costs" in race:
        rising = [sorted(rng.uniform(low, high) for _ in range(MOST + 1)) for low, high in ((0.022, 0.06), (0, 0.004))]
        race["costs"] = {"verify_s": rising[0], "draft_s": dict.fromkeys(race["tables"], rising[1])}
    elif shape == "plain" and rng.random() < 0.5:
        race["events"] = [event for event in race["events"] if event["type"] != "finished"][: -rng.randrange(1, 9)]
    race["model"]["name"] = rng.choice(TARGETS)
    if race["device"]["type"] == "cpu" and rng.random() < 0.3:
        race["device"] = {"type": "cuda", "name": "NVIDIA H100 80GB HBM3", "threads": None}
    return race | {"cautions": cautions_of(race, spec_of(race), events_of(race))}


def options_of(race: dict[str, Any]) -> tuple[float, dict[tuple[str, Any], float]]:
    """Speeds in tokens per second by the engine: of plain, and of everything that raced or can be computed."""
    events, what_if = events_of(race), what_if_of(Recording.of(race))
    speed = {lane["name"]: lane_metrics(events, lane["name"]).tokens_per_s or 0.0 for lane in race["spec"]["lanes"]}
    roles = {lane["name"]: lane["role"] for lane in race["spec"]["lanes"]}
    options: dict[tuple[str, Any], float] = {}
    for of, by_k in what_if.seconds().items() if what_if else ():
        drafter, tree = (of.removesuffix("@tree"), "tree:") if of.endswith("@tree") else (of, "")
        for k, seconds in by_k.items():
            options[drafter, f"{tree}{k}" if tree else k] = len(what_if.text.token_ids) / seconds  # type: ignore[union-attr]
    for of, by_k in what_if.drawn.items() if what_if else ():
        options |= {(of + DRAWN, int(k)): len(what_if.text.token_ids) / one["seconds"] for k, one in by_k.items()}  # type: ignore[union-attr]
    measured: dict[tuple[str, Any], float] = {}
    for lane in race["spec"]["lanes"]:
        elsewhere = lane["drafter"] == "server" and race["device"]["type"] != "server"
        if lane["role"] == SPECULATIVE and speed[lane["name"]] and not elsewhere:
            measured.setdefault((lane["drafter"], lane["k"]), speed[lane["name"]])
    plain = max(value for name, value in speed.items() if roles[name] in (PLAIN, BASELINE))
    return plain, options | measured


def test_everything_said_of_a_race_is_of_one_drafter_length_and_speed(pure: Call) -> None:
    """The command of one system next to the money of another; best lengths that differ between two tabs."""
    kinds, figures = set(), 0
    for seed in range(120):
        race = a_recording(seed)
        choose = random.Random(seed).randrange(100) if seed % 3 == 0 else None
        got = pure(ANSWER, race, choose)
        assert got is not None, seed
        plain, options = options_of(race)
        subject, target = got["subject"], race["model"]["name"]
        drafter, k, ratio = subject["drafter"], subject["k"], subject["ratio"]
        kinds.add((subject["canServe"], subject["isMeasured"], got["isChosen"], got["tone"], got["isEvidence"]))
        on_server = drafter == "server"
        greedy = {of.removesuffix(GREEDY) for of, _ in options if of.endswith(GREEDY)}
        served = {(of, at): value for (of, at), value in options.items() if of == "server" or (
                  is_served(target, ruled(of)[0]) and type(at) is int and of not in greedy)}  # fmt: skip
        assert subject["canServe"] == ((drafter, k) in served)
        assert subject["tokensPerS"] == pytest.approx(options[drafter, k]) and got["plain"] == pytest.approx(plain)
        near = 0.05 if race["events"][-1]["type"] == "step" else 0.011
        assert ratio == pytest.approx(subject["tokensPerS"] / plain, rel=near)
        if not got["isChosen"] and served:
            assert (drafter, k) in served
            assert subject["tokensPerS"] == pytest.approx(max(served.values()), rel=0.011)
        name = f"lane {subject['lane']}, on a server" if on_server else label(drafter)
        length = "" if on_server else f", k = {k}" if type(k) is int else ", automatic length" if k == "auto" else (
            f", trees of up to {k.removeprefix('tree:')}")  # fmt: skip
        is_shared = race["spec"]["params"]["temperature"] and subject["canServe"] and not ruled(drafter)[1]
        shared = ", with shared random numbers, as on no server" * bool(is_shared and drafter[:5] != "ngram")
        gain = f"{ratio:.2f}× as fast as Plain ({'measured' if subject['isMeasured'] else 'computed'}{shared})"
        both = next((of for of in greedy if of[:6] != "hybrid" and is_served(target, of)), "")
        others = got["others"]
        assert bool(both) == ("How servers draft with" in others) == ("2.50 tokens a step; 2.75 verified" in others)
        than = f"{abs(100 * (1 - 1 / ratio)):.1f}\u00a0% {'less' if ratio >= 1 else 'more'}"
        chosen = " (chosen in What if)" if got["isChosen"] else ""
        loops = not got["isEvidence"]  # then its gain is nobody's saving
        assert loops == (got["tone"] == "doubtful" and "repeats itself" in got["caution"]) and (ratio > 1 or not loops)
        on_servers = "time per answer after its first text, one user: load may change it"
        work = on_servers if on_server else "machine time for the same tokens"
        disturbed = any(caution["lane"] is None for caution in race["cautions"])  # then its saving is not quoted
        quoted = subject["canServe"] and not loops and got["tone"] != "even" and not disturbed
        saved = f", {than} {work}" if quoted else ""
        little, tone = round(ratio, 2) < THRESHOLD, got["tone"]
        assert not (on_server and seed % 2) or (tone not in ("pays", "little") and "The texts differ" in got["caution"])
        if tone in ("pays", "little", "differ"):
            assert ("rule of thumb" in got["caution"]) == little and (tone == "differ" or (tone == "little") == little)
            word = "little_differ" if little and tone == "differ" else tone
            assert got["says"].startswith(f"{capital(PAYS[word])}: " if subject["canServe"] else "This engine alone: ")
        assert bool(got["nothing"]) == ((loops or tone in ("even", "loses")) and not got["isChosen"])
        drafters = {lane["drafter"] for lane in race["spec"]["lanes"]} - {"server"}
        ships = ruled(drafter)[0] != "eagle3" and not drafters.isdisjoint(("eagle3", "hybrid:ngram+eagle3"))
        assert others.count("no server runs") == others.count("EAGLE-3 head alone: no server runs this head") == ships
        for raced in drafters:
            for part in {*served_parts(target, raced)} - {ruled(drafter)[0]}:
                known = [(speed / plain, of) for (of, _), speed in served.items() if ruled(of)[0] == part]
                figures += says_alone(others, *max(known, default=(None, part)))
        assert got["says"].endswith(f"{name}{length}{chosen}: {gain}{saved}.")
        assert got["says"].startswith("No result: the text repeats itself. ") == loops
        first, time = got["rows"][:2]
        cell = than if subject["canServe"] or ratio < 1 else "this engine alone"
        cell = "no result" if loops else "within the noise" if got["tone"] == "even" else cell
        assert first[4] == f"{ratio:.2f}×" and time[4] == cell
        assert float(first[3]) == pytest.approx(subject["tokensPerS"], abs=0.06)
        assert not any("$" in cell or "GPU" in cell for row in got["rows"] for cell in row), "dollars without a price"
        if not subject["canServe"]:
            assert got["commands"] == [] and (loops or re.search("[Tt]his engine alone: ", got["says"]))
        assert bool(got["commands"]) == (subject["canServe"] and not on_server)
        for server, command in got["commands"]:
            assert lengths(server, shlex.split(command)) <= {k}
            wanted = {"draft_model": "owner/small", "eagle3": "owner/head", "dflash": "owner/head"}
            inside = drafter.rpartition("+")[2].partition(":")[0]
            if server == "vLLM" and inside in wanted and "owner/" in drafter:
                assert wanted[inside] in command and "hybrid" not in drafter
            if inside == "ngram":
                assert "ngram" in command.lower()
    assert figures and {"pays", "little", "differ", "doubtful", "even", "loses"} == {tone for *_, tone, _ in kinds}
    assert {(s, m, c) for s, m, c, *_ in kinds} == {(s, m, c) for s in (True, False) for m in (True, False)
                                                  for c in (True, False)}, "what the races did not try"  # fmt: skip


def says_alone(others: str, ratio: float | None, part: str) -> bool:
    """Whether it gives a figure of what a server could run as well; it must, if there is one."""
    if f"a server can run: {label(ruled(part)[0])}" in others:
        return False
    name, rule = ruled(part)
    name = re.escape((label(name) if part.startswith("hybrid") else f"{short_label(name)} alone") + rule)
    match = re.search(rf"{name}(?:, k = \d+: ([\d.]+)× |: no figures at a fixed length )", others)
    assert match and bool(match[1]) == (ratio is not None), (part, others)
    assert ratio is None or float(match[1]) == pytest.approx(ratio, rel=0.02)
    return ratio is not None


def lengths(server: str, words: list[str]) -> set[int]:
    """Every draft length in a command; none in one that names only a head's own config."""
    options = dict(pairwise(words))
    if server == "vLLM":
        config = options.get("--speculative-config")
        return {json.loads(config)["num_speculative_tokens"]} if config else set()
    named = {"--speculative-num-steps": 0, "--speculative-num-draft-tokens": 1, "--spec-draft-n-max": 0,
             "--spec-ngram-simple-size-m": 0}  # fmt: skip
    return {int(options[name]) - more for name, more in named.items() if name in options}


def test_a_race_without_tables_invents_no_length(pure: Call) -> None:
    """The length of a command would be one that nobody computed: a median of lengths that varied."""
    for drafter in ("ngram", "hybrid:ngram+eagle3"):
        race = a_race([(5, 3)] * 9, drafter=drafter)
        race["spec"]["lanes"][-1]["k"] = "auto"
        got = pure(ANSWER, race, None)
        assert got["commands"] == [] and ", automatic length: " in got["says"]
    fixed = pure(ANSWER, a_race([(5, 3)] * 9), None)
    assert fixed["subject"]["k"] == 5 and fixed["subject"]["isMeasured"] and fixed["commands"]


def test_both_sides_know_the_same_servers(pure: Call) -> None:
    """A study would judge a drafter by a rule that the page's commands do not follow."""
    deployed = """(target, drafter, k) => canServe({ model: { name: target }, prompt: { text: "p" },
        spec: { params: { max_new_tokens: 1, temperature: 0, top_p: 1, top_k: 0, seed: 0, stop: [] } } },
        { drafter, k })"""
    drafters = [*DRAFTS, "none", "dflash", "hybrid:ngram+dflash", "eagle3:#aux=2,9", "eagle3:a/b@v1#aux=2"]
    drafters.append("synthetic:1")
    for target in TARGETS:
        for drafter in drafters:
            assert pure(deployed, target, drafter, 3) == is_served(target, drafter), (target, drafter)
            assert not pure(deployed, target, drafter, "auto") and not pure(deployed, target, drafter, "tree:3")


def test_a_drafter_has_one_name(pure: Call) -> None:
    """One thing under four names: on the board, in What if, in Settings and in a study."""
    texts = [*DRAFTS, "none", "dflash", "synthetic:0.8+eagle3", "hybrid:ngram+dflash", "eagle3:a/b@v1#aux=2,9"]
    texts += [text_of(name) for name in DRAFTERS] + ["eagle3:~/head", *(f"eagle3:~/head{rule}" for rule in RULES)]
    for text in texts:
        names = pure("text => [drafterName(text), shortDrafter(text)]", text)
        assert names == [label(text)[:100], short_label(text)[:100]]
        assert pure('drafter => guessWords({ drafter, k: "auto" })', text).startswith(label(text)[:90])
        assert "{" not in label(text)
    assert label("hybrid:ngram+eagle3") == "n-gram, else EAGLE-3 head"
    for stranger in ("medusa:x", "", "hybrid", "hybrid:ngram", "__proto__", "a\u202eb"):
        assert len(pure("text => drafterName(text)", stranger)) <= 100


def test_both_sides_name_the_same_scope(pure: Call) -> None:
    """A race and a study on one machine would seem to hold for two."""
    for device in ({"type": "cpu", "name": "AMD EPYC, 2 cores"}, {"type": "cuda", "name": "NVIDIA H100"}):
        about = {"model": {"name": "gemma-3-270m"}, "device": device}
        assert pure("about => scopeOf(about)", about) == scope("gemma-3-270m", device)
