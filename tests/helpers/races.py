"""Races that never ran, but could have: valid by construction, random in all else; for tests of what reads them."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hypothesis import strategies as st

from engine.analysis.same import Difference, compare, state_of
from engine.core.events import Event, Failed, Finished, LaneEvent, Started, Step, steps, token_ids
from engine.core.interfaces import Draft
from engine.core.race import race
from engine.core.spec import (
    BASELINE,
    PLAIN,
    SERVER,
    SPECULATIVE,
    LaneSpec,
    RaceSpec,
    SamplingParams,
    lanes_of,
    paths,
    standard_lanes,
)
from engine.recordings.claims import judged
from engine.recordings.recording import Recording, build

PIECES = ("The", " cat", "", " [bold]x[/]", "\x1b[31m", "\u202e", " 猫", "👩\u200d💻", "{{${", *"\n\t\ré]")
WIDTHS = {"width": 8, "widths_class": [2, 4, 8], "plain_width": 1}
PROMPT = (1, 2, 3)
WRONG = 9  # a token that no text of `a_race` has
TIMES_S = {PLAIN: (0.0, 0.022), BASELINE: (0.0, 0.026), SPECULATIVE: (0.0005, 0.0275)}  # to draft and to verify
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


def lane_steps(
    text: Sequence[int],
    propose: Callable[[int], Draft],
    times: Callable[[int], tuple[float, float, int]],
    pieces: Callable[[int], str],
    audit: bool,
) -> list[Step]:
    """Steps that commit exactly `text`.

    propose: the draft at a position.
    times: of a step of so many drafts: seconds of draft and verification, width."""
    done: list[Step] = []
    position = 0
    while position < len(text):
        draft, left, num = propose(position), text[position:], 0
        row = draft.after(0, left[0])
        while row is not None:
            num += 1
            row = draft.after(row, left[num]) if num < len(left) else None
        committed = tuple(left[: num + 1])
        step = Step(len(done), position, draft.token_ids, num, committed, *times(len(draft)))
        sums = tuple(2**63 + 3 * (position + i) for i in range(len(committed))) if audit else ()
        texts = {"pieces": tuple(map(pieces, committed)), "drafted_pieces": tuple(map(pieces, draft.token_ids))}
        tree = {"parents": draft.parents, "sources": draft.sources, "chances": draft.chances}
        done.append(replace(step, checksums=sums, **texts, **tree))
        position += len(committed)
    return done


def a_race(
    rows: Sequence[tuple[int, int]],
    plain_s: float = 0.01,
    step_s: float = 0.012,
    draft_s: float = 0.001,
    prefill_s: tuple[float, float] = (0.1, 0.1),
    drafter: str = "ngram",
    token_ids: Sequence[int] | None = None,
    pieces: Mapping[int, str] | None = None,
    audit: bool = False,
    stop: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A race whose every time and count a test chooses: `rows` are (drafted, accepted) of the steps of the speculative
    lane, each of `step_s` seconds, `draft_s` of them for a draft; a step commits what it accepts and one token more.
    Plain and baseline take `plain_s` a token. prefill_s: of the plain lanes and of the speculative one."""
    num, left = sum(accepted + 1 for _, accepted in rows), iter(rows)
    ids = range(100, 100 + num) if token_ids is None else token_ids
    params = SamplingParams(max_new_tokens=num, stop=stop)
    spec = RaceSpec(standard_lanes(drafter, max(1, *(drafted for drafted, _ in rows))), params, audit)

    def propose(position: int) -> Draft:
        drafted, accepted = next(left)
        return Draft((*ids[position : position + accepted], *[WRONG] * (drafted - accepted)))

    def times(drafted: int) -> tuple[float, float, int]:
        spent = draft_s if drafted else 0.0
        return spent, step_s - spent, max(2, drafted + 1)

    def lane(seconds: float, *how: Any) -> list[Event]:
        done = lane_steps(ids, *how, lambda token: pieces[token] if pieces else "x", audit)
        return [Started(len(PROMPT), seconds), *finished("stop_string" if stop else "length", done)]

    plain = lane(prefill_s[0], lambda position: Draft(), lambda drafted: (0.0, plain_s, 2))
    return raced(spec, PROMPT, {PLAIN: plain, BASELINE: plain, SPECULATIVE: lane(prefill_s[1], propose, times)})


def fixed_race(plain_s: float = 0.2) -> dict[str, Any]:
    """An audited race: five tokens, a step with two right drafts of three, two without a draft; a stop string."""
    pieces = {10: "a", 11: "b", 12: "c", 13: "d", 14: "end", WRONG: "x"}
    ids = range(10, 15)
    return a_race([(3, 2), (0, 0), (0, 0)], plain_s, 0.3, 0.1, (0.5, 0.5), "ngram", ids, pieces, True, ("end",))


def random_race(
    rng: random.Random,
    spec: RaceSpec,
    text: Sequence[int],
    prompt: Sequence[int] = PROMPT,
    pieces: Callable[[int], str] = piece,
    vocab_size: int = 300_000,
    hit: float = 0.8,
    widths: Sequence[int] = (8,),
    spread: float = 1.3,
    failing: bool = False,
) -> dict[str, Any]:
    """A race over this text, at 25 to 30 ms a step; each lane that drafts is slower than the one before.

    hit: how often a token of a chain is right if those before it are.
    spread: how much longer the longest steps of a lane take than its shortest.
    failing: the last lane fails."""

    def lane_events(place: int, lane: LaneSpec) -> list[Event]:
        most, slowness = int(str(lane.k).removeprefix("tree:")), max(1, place - 1)

        def propose(position: int) -> Draft:
            size = most if rng.random() < 0.6 else rng.randint(0, most)
            left = text[position:]
            if lane.k != most:
                return _tree(rng, size, [*prompt, *text[:position]], left, vocab_size)
            right = next((i for i in range(min(size, len(left))) if rng.random() >= hit), min(size, len(left)))
            return Draft((*left[:right], *(rng.randrange(vocab_size) for _ in range(size - right))))

        def times(drafted: int) -> tuple[float, float, int]:
            draft_s, verify_s = (seconds * slowness * rng.uniform(1, spread) for seconds in TIMES_S[lane.role])
            return draft_s, verify_s, max(drafted + 1, rng.choice(widths) if place else 1)

        done = lane_steps(text, propose, times, pieces, spec.audit)
        started = Started(len(prompt), rng.uniform(0.2, 0.3))
        if not failing or lane is not spec.lanes[-1]:
            return [started, *finished("length", done)]
        return [*rng.choice(([], [started], [started, done[0]])), Failed("the drafter failed: [bold]\x1b[31m")]

    return raced(spec, prompt, {lane.name: lane_events(place, lane) for place, lane in enumerate(spec.lanes)})


def _tree(rng: random.Random, most: int, before: Sequence[int], left: Sequence[int], vocab_size: int) -> Draft:
    """A draft of `a_tree`, with a chance for each token, and a place where the text has it, if there is one."""
    ids, parents = a_tree(rng, most, left, vocab_size)
    chances, sources = list[float](), list[int]()
    for token, parent, path in zip(ids, parents, paths(parents)[1:], strict=True):
        known = [*before, *(ids[i] for i in path[:-1])]
        chances.append(rng.random() * (chances[parent - 1] if parent else 1))
        sources.append(rng.choice([-1, *(i for i, known_id in enumerate(known) if known_id == token)]))
    is_chain = parents == [*range(len(ids))]
    tree = () if is_chain else tuple(parents)
    return Draft(tuple(ids), parents=tree, sources=() if is_chain else tuple(sources), chances=tuple(chances))


TOKENS = st.integers(0, 299_999)


@st.composite
def recordings(
    draw: st.DrawFn, failing: bool = False, names: tuple[str, ...] = (SPECULATIVE,), k: int | str = K
) -> dict[str, Any]:
    """A whole recording: plain, baseline and speculative lanes of these names over one completion, on the fair clock or
    one after the other. failing: the last lane fails."""
    text, prompt = (draw(st.lists(TOKENS, min_size=1, max_size=most)) for most in (40, 5))
    temperature, seed = draw(st.sampled_from([0.0, 0.8])), draw(st.integers(0, 2**63 - 1))
    params = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=len(text))
    spec = RaceSpec(lanes_of((name, "ngram", k) for name in names), params, draw(st.booleans()), draw(st.booleans()))
    how = {"hit": draw(st.floats(0, 1)), "widths": range(1, 9), "spread": 20, "failing": failing}
    return random_race(draw(st.randoms(use_true_random=True)), spec, text, prompt, **how)


def many_lanes(failing: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Recordings with any number of speculative lanes, of any names."""
    names = st.text(min_size=1, max_size=8).filter(lambda name: name not in ("plain", "baseline"))
    some = st.lists(names | st.just("__proto__"), min_size=int(failing), max_size=5, unique=True).map(tuple)
    return some.flatmap(lambda names: recordings(failing, names))


def known_in_part(recorded: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same race as servers tell it, and as one keeps it that was taken apart: of some steps only the number of
    drafts or no width, wall times, copies; tables, costs, oracles, candidates, promises."""
    out = copy.deepcopy(recorded)
    out["widths"]["width"] = None
    wall_s = {lane["name"]: 0.0 for lane in out["spec"]["lanes"]}
    for event in out["events"]:
        wall_s[event["lane"]] += rng.random()
        if rng.random() < 0.8:
            event["wall_s"] = wall_s[event["lane"]]
        if event["type"] == "step":
            event["width"] = rng.choice([event["width"], None])
            if event["drafted"] and rng.random() < 0.6:
                event.update(num_drafted=len(event["drafted"]), drafted=[], drafted_pieces=[])
    add_copies(out)
    out = with_tables(out, rng, "eagle3", "__proto__", "eagle3@tree")
    out["table_pieces"] = {str(token): f" {token}" for draft in out["tables"]["eagle3"] for token in draft}
    clocks = {event["lane"]: event["clock_s"] for event in out["events"]}
    out["oracles"] = {lane: {"seconds": 0.8 * clock_s, "share": 0.8} for lane, clock_s in clocks.items()}
    out["candidates"] = candidates_of(out, rng)
    out["promises"] = {lane: f"{lane} says: speculative decoding" for lane in wall_s if rng.random() < 0.5}
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


def with_tables(race: dict[str, Any], rng: random.Random, *names: str) -> dict[str, Any]:
    """The race with tables of these names, or one of n-grams. Where the name says so they are trees, most of which have
    a path that continues the text; else chains that could be its lane's: what each step drafted is the beginning of a
    draft there."""
    out, events, names = copy.deepcopy(race), events_of(race), names or ("ngram",)
    text = token_ids(events, "baseline")
    costs_s = sorted(rng.random() for _ in range(MOST + 1))
    out["tables"], out["costs"] = {}, {"verify_s": costs_s, "draft_s": dict.fromkeys(names, costs_s)}
    for name in names:
        if name.endswith("@tree"):
            trees = [a_tree(rng, rng.randrange(MOST + 1), text[position:], 300_000) for position in range(len(text))]
            rows = [[] if parents == [*range(len(ids))] else parents for ids, parents in trees]
            out["tables"][name], out["table_parents"] = [ids for ids, _ in trees], {name: rows}
            continue
        drafts = [[rng.randrange(300_000) for _ in range(rng.randrange(K + 1))] for _ in text]
        lane = next((lane["name"] for lane in race["spec"]["lanes"] if lane["drafter"] == name), SPECULATIVE)
        for step in steps(events, lane):
            drafts[step.position] = [*step.drafted, *drafts[step.position]][:MOST]
        out["tables"][name] = drafts
    return out


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


def raced(spec: RaceSpec, prompt: Sequence[int], lanes: Mapping[str, list[Event]]) -> dict[str, Any]:
    """The recording of these lanes' events."""
    return recording(spec, prompt, list(race({name: iter(events) for name, events in lanes.items()}, spec.solo)))


def recording(spec: RaceSpec, prompt: Sequence[int], events: list[LaneEvent]) -> dict[str, Any]:
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
        "prompt": {"text": "a prompt", "token_ids": [*prompt]},
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
