"""Races that never ran, but could have: valid by construction, random in all else; for tests of what reads them."""

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hypothesis import strategies as st

from engine.analysis.same import Difference, compare, state_of
from engine.core.events import Event, Failed, Finished, LaneEvent, Started, Step, steps, token_ids
from engine.core.race import race
from engine.core.spec import BASELINE, SERVER, SPECULATIVE, RaceSpec, SamplingParams, lanes_of, paths, standard_lanes
from engine.recordings.claims import judged
from engine.recordings.recording import Recording, build

PIECES = ("The", " cat", "", " [bold]x[/]", "\x1b[31m", "\u202e", " 猫", "👩\u200d💻", "{{${", *"\n\t\ré]")
WIDTHS = {"width": 8, "widths_class": [2, 4, 8], "plain_width": 1}
seconds = st.floats(1e-4, 0.5)
K = 7
MOST = 15  # the longest draft of `with_tables`


def events_of(recorded: Mapping[str, Any]) -> list[LaneEvent]:
    """The events of a recording that a test may have changed."""
    return list(Recording.of(recorded).events)


def spec_of(recorded: Mapping[str, Any]) -> RaceSpec:
    """The spec of a recording that a test may have changed."""
    return Recording.of(recorded).spec


def unexplained(position: int, tokens: tuple[int, int]) -> Difference:
    """A difference of which nothing is known but its place."""
    return Difference(position, tokens, ("", ""), (1, 1), 0.0, 0.0, 0.0)


def a_step(seconds: float) -> Step:
    """The first step of a lane, which commits one token of its own."""
    return Step(0, 0, (), 0, (7,), 0.0, seconds, 8, ("x",))


def piece(token: int) -> str:
    return PIECES[token % len(PIECES)]


def finished(reason: str, done: list[Step]) -> list[Event]:
    return [*done, Finished(reason, sum(len(s.token_ids) for s in done), sum(s.seconds for s in done))]


@st.composite
def lane_steps(draw: st.DrawFn, token_ids: list[int], k: int, audit: bool) -> list[Step]:
    """Steps that commit exactly `token_ids`, cut at random, with drafts that are partly right."""
    out: list[Step] = []
    position = 0
    while position < len(token_ids):
        left = token_ids[position:]
        num_drafted = draw(st.integers(0, k))
        right = draw(st.integers(0, min(num_drafted, len(left))))
        wrong = [(left[right] if right < len(left) else 0) + 1 + i for i in range(num_drafted - right)]
        committed = left[: right + 1]
        drafted = (*left[:right], *wrong)
        checksums = tuple((token * 2**40 + position + i) % 2**64 for i, token in enumerate(committed)) if audit else ()
        done = (len(out), position, drafted, right, tuple(committed))
        cost = (draw(seconds), draw(seconds), draw(st.integers(num_drafted + 1, 8)))
        out.append(Step(*done, *cost, tuple(map(piece, committed)), tuple(map(piece, drafted)), checksums))
        position += len(committed)
    return out


@st.composite
def recordings(draw: st.DrawFn, failing: bool = False, names: tuple[str, ...] = (SPECULATIVE,)) -> dict[str, Any]:
    """A whole recording: plain, baseline and speculative lanes of these names over one completion, on the fair clock or
    one after the other. failing: the last lane fails."""
    audit, solo = draw(st.booleans()), draw(st.booleans())
    token_ids = draw(st.lists(st.integers(0, 300_000), min_size=1, max_size=40))
    prompt = draw(st.lists(st.integers(0, 300_000), min_size=1, max_size=5))
    temperature, seed = draw(st.sampled_from([0.0, 0.8])), draw(st.integers(0, 2**63 - 1))
    params = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=len(token_ids))
    spec = RaceSpec(lanes_of((name, "ngram", K) for name in names), params, audit, solo)
    lanes: dict[str, list[Event]] = {}
    for lane in spec.lanes:
        started = Started(len(prompt), draw(seconds))
        done = draw(lane_steps(token_ids, lane.k, audit))
        if failing and lane is spec.lanes[-1]:
            begun = draw(st.sampled_from([[], [started], [started, *done[:1]]]))
            lanes[lane.name] = [*begun, Failed("the drafter failed: [bold]\x1b[31m")]
        else:
            lanes[lane.name] = [started, *finished("length", done)]
    return recording(spec, prompt, list(race({name: iter(events) for name, events in lanes.items()}, solo)))


def many_lanes(failing: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Recordings with any number of speculative lanes, of any names."""
    names = st.text(min_size=1, max_size=8).filter(lambda name: name not in ("plain", "baseline"))
    some = st.lists(names | st.just("__proto__"), min_size=int(failing), max_size=5, unique=True).map(tuple)
    return some.flatmap(lambda names: recordings(failing, names))


OF_EVENTS = ("num_drafted", "wall_s", "copied")
OF_TABLES = ("tables", "table_parents", "table_pieces")
# Fields that an event, and a recording of schema 2, may have.
BESIDE = (*OF_TABLES, "costs", "oracles", "candidates", "promises")


def known_in_part(recorded: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same race as servers tell it, and as one keeps it that was taken apart: of some steps only the number of
    drafts or no width, wall times, copies; tables, costs, oracles, candidates, promises."""
    out = copy.deepcopy(recorded)
    out["widths"]["width"] = None
    token_ids: dict[str, list[int]] = {lane["name"]: [] for lane in out["spec"]["lanes"]}
    wall_s = dict.fromkeys(token_ids, 0.0)
    for event in out["events"]:
        wall_s[event["lane"]] += rng.random()
        if rng.random() < 0.8:
            event["wall_s"] = wall_s[event["lane"]]
        if event["type"] == "step":
            token_ids[event["lane"]] += event["token_ids"]
            event["width"] = rng.choice([event["width"], None])
            if event["drafted"] and rng.random() < 0.6:
                event.update(num_drafted=len(event["drafted"]), drafted=[], drafted_pieces=[])
    add_copies(out)
    drafts = [[rng.randrange(300_000) for _ in range(rng.randrange(4))] for _ in token_ids["baseline"]]
    out["tables"] = {"eagle3": drafts, "__proto__": [[] for _ in drafts]}
    _add_trees(out, "eagle3@tree", token_ids["baseline"], rng)
    out["table_pieces"] = {str(token): f" {token}" for draft in drafts for token in draft}
    costs_s = sorted(rng.random() for _ in range(MOST + 1))
    out["costs"] = {"verify_s": costs_s, "draft_s": {name: [0, *costs_s[1:]] for name in out["tables"]}}
    clocks = {event["lane"]: event["clock_s"] for event in out["events"]}
    out["oracles"] = {lane: {"seconds": 0.8 * clock_s, "share": 0.8} for lane, clock_s in clocks.items()}
    out["candidates"] = candidates_of(out, rng)
    out["promises"] = {lane: f"{lane} says: speculative decoding" for lane in token_ids if rng.random() < 0.5}
    return out | judged(out, spec_of(out), events_of(out))


def add_copies(recorded: dict[str, Any]) -> None:
    """`copied` in each step whose draft is a chain and, but for its first tokens, stands in the text before it."""
    texts = {lane["name"]: list(recorded["prompt"]["token_ids"]) for lane in recorded["spec"]["lanes"]}
    for step in (event for event in recorded["events"] if event["type"] == "step"):
        drafted, before = step["drafted"], texts[step["lane"]]
        for start in range(len(drafted) if "parents" not in step else 0):
            copied, text = drafted[start:], before + drafted
            if places := [i for i in range(len(before)) if text[i : i + len(copied)] == copied]:
                step["copied"] = [start, places[-1]]
                break
        texts[step["lane"]] = before + step["token_ids"]


def candidates_of(recorded: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Of every lane but the plain one; every committed token is the best of its row under the first seed."""
    seeds = [0, 7] if recorded["spec"]["params"]["temperature"] else []
    lanes: dict[str, Any] = {lane["name"]: [] for lane in recorded["spec"]["lanes"] if lane["role"] != "plain"}
    for event in recorded["events"]:
        if event["type"] == "step" and event["lane"] in lanes:
            num_rows = len(event["drafted"]) + event.get("num_drafted", 0) + 1
            lanes[event["lane"]].append([_row(event["token_ids"][r : r + 1], seeds, rng) for r in range(num_rows)])
    return {"seeds": seeds, "pieces": {"1": " one"}, "lanes": lanes}


def _row(committed: list[int], seeds: list[int], rng: random.Random) -> dict[str, Any]:
    ids = list(dict.fromkeys([*committed, *(rng.randrange(300_000) for _ in range(3))]))
    logits = sorted((rng.uniform(-9, 9) for _ in ids), reverse=True)
    row: dict[str, Any] = {"ids": ids, "logits": logits, "log_z": logits[0] + rng.uniform(1.5, 3)}
    if committed and seeds:
        row["noise"] = [sorted((rng.uniform(-1, 4) for _ in ids), reverse=True) for _ in seeds]
    return row


def servers_races(whole: st.SearchStrategy[dict[str, Any]] | None = None) -> st.SearchStrategy[dict[str, Any]]:
    """Recordings that are known in part."""
    return st.builds(known_in_part, many_lanes() if whole is None else whole, st.randoms(use_true_random=False))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def altered(draw: st.DrawFn, whole: st.SearchStrategy[Any]) -> Any:
    """One of these recordings with a value somewhere replaced, removed or added."""
    recorded = copy.deepcopy(draw(whole))
    at: Any = recorded
    while True:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not at[key] or not isinstance(at[key], (dict, list)) or draw(st.integers(0, 3)) == 0:
            break
        at = at[key]
    how = draw(st.sampled_from(["replace", "remove", "add"]))
    if how == "remove":
        del at[key]
    else:
        is_added = how == "add" and isinstance(at, dict)
        at[draw(st.sampled_from(OF_EVENTS + BESIDE)) if is_added else key] = draw(JSON_VALUES)
    return recorded


def with_tables(race: dict[str, Any], rng: random.Random, name: str = "ngram") -> dict[str, Any]:
    """The race with a table that could be its lanes': what each step drafted is the beginning of a draft there."""
    out, events = copy.deepcopy(race), events_of(race)
    drafts = [[rng.randrange(300_000) for _ in range(rng.randrange(K + 1))] for _ in token_ids(events, "baseline")]
    for step in steps(events, "speculative"):
        drafts[step.position] = [*step.drafted, *drafts[step.position]][:MOST]
    costs_s = sorted(rng.random() for _ in range(MOST + 1))
    out["tables"], out["costs"] = {name: drafts}, {"verify_s": costs_s, "draft_s": {name: costs_s}}
    return out


def with_trees(race: dict[str, Any], rng: random.Random, name: str = "ngram@tree") -> dict[str, Any]:
    """The race `with_tables`, and one of trees."""
    out = with_tables(race, rng)
    _add_trees(out, name, token_ids(events_of(race), "baseline"), rng)
    out["costs"]["draft_s"][name] = out["costs"]["draft_s"]["ngram"]
    return out


def _add_trees(race: dict[str, Any], name: str, text: list[int], rng: random.Random) -> None:
    """A table of trees, most of which have a path that continues the text."""
    drafts, rows = list[list[int]](), list[list[int]]()
    for position in range(len(text)):
        ids, parents = a_tree(rng, rng.randrange(MOST + 1), text[position:], 300_000)
        drafts.append(ids)
        rows.append([] if parents == [*range(len(ids))] else parents)
    race["tables"][name], race["table_parents"] = drafts, {name: rows}


def a_tree(rng: random.Random, most: int, text: Sequence[int], vocab_size: int) -> tuple[list[int], list[int]]:
    """The tokens and parents of a random tree, most of which have a path that continues as the text does."""
    ids, parents, depths, right = list[int](), list[int](), [0], 0
    for _ in range(most):
        parent = right if rng.random() < 0.5 else rng.randrange(len(depths))
        true = text[depths[parent]] if depths[parent] < len(text) else None
        token = true if true is not None and rng.random() < 0.6 else rng.randrange(vocab_size)
        if (parent, token) not in zip(parents, ids, strict=True):
            ids.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
            right = len(ids) if token == true and parent == right else right
    return ids, parents


def as_trees(recorded: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same race with trees for drafts: what was accepted is a path of each; beside it stands what was dropped, or
    another token, and what only a tree can drop."""
    out = copy.deepcopy(dict(recorded))
    text = [*out["prompt"]["token_ids"]]
    for event in (e for e in out["events"] if e["lane"] == SPECULATIVE and e["type"] == "step"):
        if event["drafted"]:
            _branch(event, text, rng)
        text += event["token_ids"]
    out["spec"]["lanes"][-1]["k"] = f"tree:{MOST}"
    return out


def _branch(event: dict[str, Any], text: list[int], rng: random.Random) -> None:
    """Make a step's chain a tree."""
    num = event["num_accepted"] if rng.random() < 0.3 else len(event["drafted"])  # without: the path ends with a leaf
    drafted = zip(event["drafted"], event["drafted_pieces"], range(len(event["drafted"])), strict=True)
    nodes = list(drafted)[:num]
    for number in range(rng.randrange(MOST - num)):
        nodes.append((230_000 + number, f" or{number}", rng.randrange(len(nodes) + 1)))
    order: list[int] = []
    rows = {0: 0}  # of each node + 1, in the order in which they are drafted
    while left := [i for i, node in enumerate(nodes) if i not in order and node[2] in rows]:
        order.append(rng.choice(left))
        rows[order[-1] + 1] = len(order)
    parents = [rows[nodes[i][2]] for i in order]
    event["drafted"], event["drafted_pieces"] = ([nodes[i][part] for i in order] for part in (0, 1))
    if not order:
        return
    chances = [round(rng.random(), 4) for _ in order]
    for i, parent in enumerate(parents):
        chances[i] = chances[i] * (chances[parent - 1] if parent else 1)
    event |= {"chances": chances, "width": max(event["width"], len(order) + 1)}
    if parents != [*range(len(order))]:
        event["parents"] = parents
        sources = []
        for token, path in zip(event["drafted"], paths(parents)[1:], strict=True):
            known = [*text, *(event["drafted"][i] for i in path[:-1])]
            sources.append(rng.choice([-1, *(i for i, known_id in enumerate(known) if known_id == token)]))
        if max(sources) >= 0:
            event["sources"] = sources


def on_servers(recorded: dict[str, Any]) -> dict[str, Any]:
    """The same race as servers tell it: no step has a width or a name of a draft, the first of a lane has no time, and
    the second and third came as one chunk that nobody can take apart."""
    out = copy.deepcopy(recorded)
    out["spec"]["audit"], out["prompt"]["token_ids"] = False, []
    out["device"] = {"type": SERVER, "name": "two servers", "threads": None}
    for lane in out["spec"]["lanes"]:
        lane.update(drafter=SERVER, k="auto", width="auto")
        events = [event for event in out["events"] if event["lane"] == lane["name"]]
        done = [event for event in events if event["type"] == "step"]
        for key in ("token_ids", "pieces"):
            done[1][key] += done[2][key]
        done[1].update(num_accepted=0, drafted=[], drafted_pieces=[])
        out["events"].remove(done.pop(2))
        clock_s = 0.0
        for i, event in enumerate(done):
            event.update(index=i, width=None, checksums=[], verify_s=event["verify_s"] * (i > 0), draft_s=0.0)
            if event["drafted"]:
                event.update(num_drafted=len(event["drafted"]), drafted=[], drafted_pieces=[])
            event["clock_s"] = clock_s = clock_s + event["verify_s"]
        events[-1].update(clock_s=clock_s, decode_s=clock_s)
    for verdict in out["verdicts"].values():
        verdict.update(kind="same_text", rows_different=None, first_difference=None)
    return out


def fixed_race() -> dict[str, Any]:
    """An audited race: five tokens, a step with two right drafts of three, two without a draft; a stop string."""
    spec = RaceSpec(standard_lanes("ngram", 3), SamplingParams(max_new_tokens=5, stop=("end",)), audit=True)
    words = {10: "a", 11: "b", 12: "c", 13: "d", 14: "end", 9: "x"}

    def one(index: int, position: int, ids: tuple[int, ...], draft_s: float, drafted: tuple[int, ...] = ()) -> Step:
        pieces, drafted_pieces = (tuple(words[token] for token in tokens) for tokens in (ids, drafted))
        done, checksums = (index, position, drafted, len(ids) - 1, ids), tuple(2**63 + token for token in ids)
        return Step(*done, draft_s, 0.2, 4, pieces, drafted_pieces, checksums)

    plain = [one(i, i, (10 + i,), 0.0) for i in range(5)]
    drafted = [one(0, 0, (10, 11, 12), 0.1, (10, 11, 9)), one(1, 3, (13,), 0.1), one(2, 4, (14,), 0.1)]
    lanes = {"plain": plain, "baseline": plain, "speculative": drafted}
    played = {name: iter([Started(2, 0.5), *finished("stop_string", done)]) for name, done in lanes.items()}
    return recording(spec, [1, 2], list(race(played)))


def recording(spec: RaceSpec, prompt: list[int], events: list[LaneEvent]) -> dict[str, Any]:
    """What a backend would record of these events, as it comes back from JSON."""
    header = {
        "model": {"name": "a-model", "revision": None, "digest": "d1", "dtype": "float32", "licence": "a licence"},
        "device": {"type": "cpu", "name": "a processor, 2 cores", "threads": 2},
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "commit": "0123456789ab",
        "created": "2026-01-02T03:04:05Z",
        "widths": WIDTHS | {"exact": True, "cache_length": 64, "note": "steps run at widths 2, 4 and 8"},
        "synthetic": [],
        "spec": asdict(spec),
        "prompt": {"text": "a prompt", "token_ids": prompt},
    }
    lanes = {lane.name: steps(events, lane.name) for lane in spec.lanes}
    baseline = spec.named(BASELINE)[0]
    circumstances: dict[str, Any] = {"same_class": True, "dtype": "float32", "explain": unexplained}

    def judge(second: str) -> dict[str, Any]:
        names = (baseline, second)
        states = (state_of(events, baseline), state_of(events, second))
        return compare(lanes[baseline], lanes[second], names=names, states=states, **circumstances).to_json()

    return build(header, events, {"verdicts": {name: judge(name) for name in lanes if name != baseline}}).fields


def steps_of(recorded: Mapping[str, Any], lane: str = SPECULATIVE) -> list[dict[str, Any]]:
    return [event for event in recorded["events"] if event["type"] == "step" and event["lane"] == lane]
