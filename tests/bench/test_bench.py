"""The bench: what its object promises, the order of its rounds, its medians, and that it finds a lane that writes other
tokens."""

from __future__ import annotations

import io
import json
import shlex
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from engine.bench import measure as measure_module
from engine.bench.bench_prompts import QUICK, BenchPrompt
from engine.bench.our_lanes import CURVE, lane_specs, step_curve
from engine.bench.peers import EAGER, PROMPT_LOOKUP, Peers, ready_with_stock
from engine.cli import main as cli
from engine.cli.report_tables import print_bench
from engine.core.interfaces import Acceptance
from engine.core.spec import AUTO, LaneSpec, RaceSpec, SamplingParams
from engine.drafters.ngram import NgramDrafter
from engine.loading.loading import load
from engine.progress import silent
from engine.session import TorchRace
from engine.session import lanes as session_lanes
from engine.session.run_prompts import other_way_round
from engine.text import encode_prompt
from tests.helpers import ROOT
from tests.helpers.tiny import fresh
from tests.helpers.trained import PROMPTS, trained

TRAINED = ROOT / "tests/fixtures/trained"
DRAFT = f"draft_model:{TRAINED / 'draft'}"
BENCH = shlex.split(f"bench --quick --target {TRAINED / 'target'} --dtype float32 --threads 1 --max-new-tokens 12")
CONTRACT = {"schema", "device", "dtype", "rows", "widths", "bandwidth_share"}
ROW = {"name", "kind", "tokens_per_s", "p25", "p75", "speedup_vs_plain", "identical", "synthetic"}
PARAMS = SamplingParams(max_new_tokens=12)


@pytest.fixture(scope="module")
def report() -> dict:
    """A whole bench of two kinds, as another program reads it."""
    asked = shlex.split(f"--json --drafter ngram {DRAFT} synthetic:0.7 --kinds chat json")
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        assert cli.main([*BENCH, *asked]) == 0 and err.getvalue() == "", err.getvalue()
    return json.loads(out.getvalue())


def test_the_object_is_the_contract(report):
    """A script that reads the result would miss a key, a row or a kind; or find a number that is none."""
    assert report.keys() >= CONTRACT and report["dtype"] == "float32"
    assert (report["device"]["type"], report["device"]["threads"]) == ("cpu", 1)
    names = ["plain", "baseline", "ngram", DRAFT, "synthetic:0.7", "hf_eager", "hf_prompt_lookup", "hf_assisted"]
    wanted = [(kind, name) for kind in ("json", "chat") for name in names]
    assert [(row["kind"], row["name"]) for row in report["rows"]] == wanted
    for row in report["rows"]:
        assert row.keys() >= ROW and row["num_runs"] == 2 and row["speedup_vs_plain"] > 0
        assert 0 < row["p25"] <= row["tokens_per_s"] <= row["p75"]
        assert row["identical"] is (None if row["name"] == "plain" or row["name"].startswith("hf_") else True)
        assert row["synthetic"] is (row["name"] == "synthetic:0.7")
        assert row["speedup_vs_plain"] == 1 or row["name"] != "plain"
    assert list(report["widths"]) == list(map(str, CURVE)) and min(report["widths"].values()) > 0
    assert report["bandwidth_share"] is None or 0 < report["bandwidth_share"] <= 1
    assert report["versions"]["torch"] == torch.__version__
    assert report["settings"]["num_prompts"] == 2
    assert report["settings"]["k"] == {"ngram": 7, DRAFT: "auto", "synthetic:0.7": 7}
    assert report["stock_widths"].keys() == {"1", "8", "16"}
    assert report["num_tokens"] == sum(row["num_tokens"] for row in report["rows"])
    pairs = {(entry["name"], entry["peer"]) for entry in report["against_peers"]}
    assert pairs == {("plain", "hf_eager"), ("ngram", "hf_prompt_lookup"), (DRAFT, "hf_assisted")}


def test_the_table_shows_every_row(report):
    """A row, a synthetic label, or the machine it ran on would be left out; or a name be taken for markup."""
    shown = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    marked = {
        **report,
        "rows": [{**row, "identical": False, "name": "[bold]x[/]"} for row in report["rows"][:1]] + report["rows"][1:],
    }
    print_bench(shown, marked)
    text = shown.export_text()
    for words in ("[bold]x[/]", "NO", "SYNTHETIC drafts", "best peer without drafts", "threads: 1"):
        assert words in text
    assert all(row["name"] in text for row in report["rows"][1:])


def rounds(repeats=1, tokens=12, names=()):
    """The rounds of a bench of one prompt on the small trained target, with these peers: (samples, races, notes)."""
    loaded, notes, params = trained(), [], replace(PARAMS, max_new_tokens=tokens)
    item = BenchPrompt("a", "json", PROMPTS[0])
    peers = Peers(fresh("trained"), params, names) if names else Namespace(names=names)
    size, chosen = replace(QUICK, repeats=repeats), [(item, item.encode(loaded.tokenizer))]
    bench = measure_module.Bench(loaded, ("ngram",), 3, size, params, chosen, notes, silent)
    return *measure_module.rounds(bench, peers), notes


def test_the_order_alternates(monkeypatch):
    """Whoever always ran first would have the cooler machine, and whoever ran second the warmer caches; or a peer write
    another number of tokens than our lanes."""
    seen = []
    run, events = Peers.run, TorchRace.events
    monkeypatch.setattr(Peers, "run", lambda self, name, *more: seen.append(name) or run(self, name, *more))
    monkeypatch.setattr(TorchRace, "events", lambda self: seen.append(tuple(self.lanes)) or events(self))
    samples, raced, notes = rounds(repeats=3, names=(EAGER, PROMPT_LOOKUP))
    forwards = [("plain", "baseline", "ngram"), EAGER, PROMPT_LOOKUP]
    backwards = [PROMPT_LOOKUP, EAGER, ("ngram", "plain", "baseline")]
    assert seen == [*forwards, *backwards, *forwards] and not notes
    assert len(raced) == 3 and len(samples) == 3 * 5
    assert [s.name for s in samples[:5]] == ["plain", "baseline", "ngram", EAGER, PROMPT_LOOKUP]
    assert {(s.repeat, s.num_tokens) for s in samples} == {(repeat, 12) for repeat in range(3)}


@given(
    st.lists(st.sampled_from(["ngram", "synthetic:0.5", "eagle3:x", "draft_model:y"]), unique=True, min_size=1),
    st.none() | st.integers(1, 9) | st.just(AUTO),
    st.booleans(),
)
def test_every_race_has_every_lane_and_ends_with_an_exact_one(drafters, k, backwards):
    """A lane would be missing, draft another k, or `synthetic` draft from the plain lane's width."""
    spec = RaceSpec(lane_specs(drafters, k), PARAMS)
    lanes = (other_way_round(spec) if backwards else spec).lanes
    assert {lane.name for lane in lanes} == {"plain", "baseline", *drafters} and len(lanes) == 2 + len(drafters)
    drafting = [lane for lane in lanes if lane.drafter != "none"]
    assert all(lane.k == (k or (AUTO if lane.name == "draft_model:y" else 7)) for lane in drafting)
    assert lanes[-1].width == "auto" and next(lane for lane in lanes if lane.name == "plain").width == "fastest"


def one_race(tokens=12):
    """Whether each lane was identical, and the race."""
    samples, (raced,), _ = rounds(tokens=tokens)
    return [s.identical for s in samples if s.name in raced.samples], raced


def judged_by(change: Callable[[LaneSpec, Acceptance, int], Acceptance], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every lane's rule gives `change(lane, its own verdict, position)`."""
    rule_of = session_lanes.rule_of

    def changed(order: session_lanes.Order, lane: LaneSpec) -> Any:
        rule: Any = rule_of(order, lane)
        accept: Any = lambda draft, logits, position: change(lane, rule(draft, logits, position), position)  # noqa: E731
        accept.guarantee = rule.guarantee
        return accept

    monkeypatch.setattr(session_lanes, "rule_of", changed)


def test_a_lane_that_writes_other_tokens_is_found(monkeypatch, capsys):
    """A rule that commits a wrong token would be shown as identical, and the command end with status 0."""

    def wrong(lane: LaneSpec, right: Acceptance, position: int) -> Acceptance:
        if lane.name == "ngram" and position < 5 <= position + len(right.token_ids):
            return Acceptance(right.num_accepted, (*right.token_ids[:-1], (right.token_ids[-1] + 1) % 2048))
        return right

    assert one_race()[0] == [None, True, True]
    judged_by(wrong, monkeypatch)
    identical, raced = one_race()
    assert identical == [None, True, False] and "baseline and ngram diverge at token" in raced.faults[0]
    assert cli.main([*BENCH, "--kinds", "json", "--repeats", "1", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [row["identical"] for row in json.loads(out)["rows"] if row["name"] == "ngram"] == [False]
    assert "diverge at token" in err and err.count("\n") == 1


def test_a_lane_that_fails_is_no_identical_one(monkeypatch):
    """A drafter that raises in the middle leaves a prefix that agrees: that is no proof of anything."""
    propose = NgramDrafter.propose
    monkeypatch.setattr(
        NgramDrafter, "propose", lambda self, ids, hidden, k: 1 / 0 if len(ids) > 40 else propose(self, ids, hidden, k)
    )
    identical, raced = one_race(tokens=40)
    assert identical == [None, True, None] and "lane ngram failed" in raced.faults[0]


def test_the_curve_fits_a_small_cache():
    """The widest step would write beyond the cache of a short race."""
    curve = step_curve(trained().prepared, 256, 250, 1)
    assert tuple(curve) == CURVE and min(curve.values()) > 0


def test_peers_run_on_a_stock_copy():
    """transformers would be timed with our attention and our packed linears."""
    loaded, notes = load(str(TRAINED / "target"), "float32", "cpu"), []
    stock = ready_with_stock(loaded)
    chosen = [(BenchPrompt("a", "json", "{"), encode_prompt(loaded.tokenizer, "{"))]
    size = replace(QUICK, tokens=8)
    bench = measure_module.Bench(loaded, ("ngram", DRAFT), None, size, PARAMS, chosen, notes, silent)
    peers = measure_module._peers(bench, stock)
    assert peers.names == ("hf_eager", "hf_prompt_lookup", "hf_assisted") and not notes
    assert peers._model is stock is not loaded.model and stock.config._attn_implementation == "sdpa"
    assert {type(m) for m in stock.modules() if hasattr(m, "in_features")} == {torch.nn.Linear}
    untouched = fresh("trained")
    assert all(torch.equal(a, b) for a, b in zip(stock.parameters(), untouched.parameters(), strict=True))
    assert torch.equal(stock(torch.tensor([[5, 6, 7]])).logits, untouched(torch.tensor([[5, 6, 7]])).logits)
