"""What the tab "Decide" computes: money to the cent, and commands that a shell splits as they were meant."""

import json
import math
import random
import shlex
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from engine.analysis.metrics import cost_per_million
from tests.helpers.race_pages import HOSTILE
from tests.helpers.races import a_race

MODULES = ("tabs/answer.js", "tabs/money.js", "tabs/production.js")
Call = Callable[..., Any]


def production(pure: Call, target: str, drafter: str, k: Any = 5) -> dict[str, Any]:
    return pure("productionOf", {"model": {"name": target}}, {"drafter": drafter, "k": k})


def commands(made: dict[str, Any]) -> list[list[str] | None]:
    """The words of each server's command."""
    return [shlex.split(server["command"]) if server["command"] else None for server in made["servers"]]


@pytest.mark.parametrize(
    ("thousands", "point"), [(",", "."), (".", ","), (" ", ","), ("\u202f", ","), ("'", "."), ("", ",")]
)
def test_a_number_is_read_in_every_notation(pure: Call, thousands: str, point: str) -> None:
    """A browser's own box drops a comma: a price of 2,5 was 25, and 1.000.000 tokens a day one."""
    for value in (0.5, 2.5, 41.62, 999, 12345.25, 1e6, 1234567.5):
        english = f"{value:,.2f}".rstrip("0").rstrip(".")
        text = english.translate({ord(","): thousands, ord("."): point})
        assert pure("numberIn", text) == value, text
    for text, either, whole in (("1,000", 1000, 1000), ("1.000", 1, 1000), ("10.000.000", 1e7, 1e7), ("1e6", 1e6, 1e6)):
        assert (pure("numberIn", text), pure("numberIn", text, True)) == (either, whole)
    read = [pure("numberIn", text) for text in ("", "?", "1,2,3", "2.5 $", "0,500", "\uff11\uff12\uff0e\uff15")]
    assert read == [None] * 4 + [0.5, 12.5]  # the last as Japanese and Chinese keyboards write it


def test_money_is_what_its_formulas_say(pure: Call) -> None:
    """A cost that is not the engine's; part of a machine that nobody rents; a goal that is not served."""
    rng = random.Random(1)
    for _ in range(200):
        plain, fast = sorted(math.exp(rng.uniform(1, 7)) for _ in range(2))
        day = {"dollars": rng.uniform(0.1, 50), "tokens": math.exp(rng.uniform(5, 24)), "hours": rng.uniform(1, 24)}
        slow, quick = (pure("dayOf", speed, day) for speed in (plain, fast))
        saved = pure("savedBy", slow, quick)
        assert slow["perMillion"] == pytest.approx(cost_per_million(plain, day["dollars"]))
        assert slow["byWork"] == pytest.approx(slow["perMillion"] * day["tokens"] / 1e6)
        assert slow["whole"] >= 1 and slow["whole"] - 1 <= slow["machines"] <= slow["whole"] + 1e-6
        assert slow["rented"] == pytest.approx(slow["whole"] * day["hours"] * day["dollars"])
        assert saved["share"] == pytest.approx(1 - plain / fast) == pytest.approx(1 - quick["byWork"] / slow["byWork"])
        assert saved["byWorkYear"] == pytest.approx(365 * (slow["byWork"] - quick["byWork"]))
        prefill, goal_s, goal = rng.uniform(0, 1), rng.uniform(1.1, 9), rng.randrange(1, 999)
        need = pure("speedupNeeded", {"tokensPerS": plain}, prefill, goal, goal_s)
        assert prefill + goal / (plain * need) == pytest.approx(goal_s)
        assert need <= float(pure("needWords", need)) + 1e-9 < need + 0.011
    assert pure("speedupNeeded", {"tokensPerS": 50}, 2, 10, 2) is None


def test_dollars_need_a_price_and_a_gain_and_a_year_needs_a_gpu(pure: Call) -> None:
    """A saving without a price or a gain; a yearly one from two CPU cores; or a server's day, from one text."""
    rng = random.Random(5)
    money = """(recording, dollars, device) => {
        const race = new Race(recording.events), first = firstByRole(recording.spec.lanes);
        const found = answerOf(recording, race, first);
        const inputs = { dollars, tokens: 1e7, hours: 24, goalTokens: 200, goalS: 2 };
        return { ratio: found.subject.ratio, plain: found.plain.tokensPerS, rows: moneyRows(found, inputs, device) };
    }"""
    seen = set()
    for _ in range(120):
        race = a_race([(rng.randrange(1, 8), rng.randrange(2))] * 9)
        dollars, device = rng.choice((None, 2, 41.62)), rng.choice(("cpu", "cuda", "server"))
        got = pure(money, race, dollars, device)
        said, rows = " ".join(cell for row in got["rows"] for cell in row), got["rows"][3:]
        pays, is_gpu = dollars is not None and device != "server" and got["ratio"] > 1, device == "cuda"
        assert ("$" in said) == pays and ("a year" in said) == (pays and is_gpu) and (is_gpu or "GPU" not in said)
        assert len(rows) == (0 if device == "server" else 5 if pays else 2)
        assert all(row[0].endswith(" (on this CPU)") == (device == "cpu") for row in rows), "what it rests on"
        if pays:
            slow, quick = (float(cell.removeprefix("$")) for cell in rows[2][2:4])
            assert slow == pytest.approx(cost_per_million(got["plain"], dollars), abs=0.01)
            assert slow / quick == pytest.approx(got["ratio"], rel=0.02)
        seen.add((pays, device, got["ratio"] > 1))
    assert len(seen) == 8


def test_every_price_has_its_source_and_the_races_own_comes_first(pure: Call) -> None:
    """A price that nobody published, or of another device than the race's without a word; two that look like one."""
    prices = pure("() => PRICES")
    assert len({price["dollars"] for price in prices}) == len(prices) >= 6
    assert all("/pricing" in price["source"] and date.fromisoformat(price["read"]) < date.today() for price in prices)
    for name, gpu in (("H100 80GB HBM3", "H100 SXM"), ("A100-SXM4-80GB", "A100 80 GB"), ("L4", "L4"), ("H100 NVL", "")):
        about = pure("name => pricesFor({ name }).map(([price]) => priceWords(Number(price), { name }))", name)
        assert [f"another device: {name}." in words for words in about] == [not gpu, *[True] * (len(prices) - 1)]
        assert about[0].startswith(f"{gpu or 'H200'}: $")


def test_each_drafter_gets_its_own_commands_or_none(pure: Call) -> None:
    """A command for a drafter that the server does not have, at another length, or none where there is one."""
    target, eagle = "Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3"
    vllm, sglang, llama = commands(production(pure, target, "ngram:2", 7))
    assert json.loads(vllm[-1]) == {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4,
                                    "num_speculative_tokens": 7}  # fmt: skip
    assert sglang[sglang.index("--speculative-num-draft-tokens") + 1] == "8"
    assert llama[llama.index("--spec-ngram-simple-size-m") + 1] == "7"
    vllm, by_itself, sglang, llama = commands(production(pure, target, f"eagle3:{eagle}@v1#aux=2,9", 3))
    assert json.loads(vllm[-1]) == {"method": "eagle3", "model": eagle, "revision": "v1", "num_speculative_tokens": 3}
    assert by_itself == ["vllm", "serve", eagle] and sglang is None
    assert llama[-3:] == ["Qwen3-8B-speculator.eagle3.gguf", "--spec-draft-n-max", "3"]
    vllm, sglang, llama = commands(production(pure, target, "hybrid:ngram+draft_model:Qwen/Qwen3-0.6B"))
    assert vllm is sglang is None, "the command of another drafter than was asked for"
    assert llama[llama.index("--spec-type") + 1] == "ngram-simple,draft-simple"
    assert commands(production(pure, "gemma-3-270m", "eagle3:./head"))[:2] == [None, None]
    vllm, *_ = commands(production(pure, "gemma-3-270m", "ngram"))
    assert vllm[2] == "google/gemma-3-270m" and json.loads(vllm[-1])["num_speculative_tokens"] == 5
    for k in ("auto", "tree:5"):
        assert production(pure, target, "ngram", k)["servers"] == []
    for name, drafter in (("gemma-3-270m", "eagle3"), ("gemma-3-270m", "dflash"), (target, "synthetic:0.8"),
                          ("gemma-3-270m", "hybrid:ngram+eagle3"),
                          (target, "synthetic:0.8+ngram"), (target, "none"), (target, "medusa:x"),
                          ("random:Qwen/Qwen3-8B", "ngram")):  # fmt: skip
        made = production(pure, name, drafter)
        assert made["servers"] == [] and len(made["notes"]) == 1


def test_no_name_breaks_out_of_its_quotes(pure: Call, tmp_path: Path) -> None:
    """A stranger's recording would put a command of its own, an option or a key press into a visitor's terminal."""
    ran = tmp_path / "ran"
    evil = [f"a'; touch {ran}; '", f"$(touch {ran})", f"`touch {ran}`", f"a && touch {ran}", f'"; touch {ran}; "',
            "a\\'b", "~/x", "*", "!!", "a b", "{a,b}", "Größe/模型", "%s", "a/../b"]  # fmt: skip
    for name in evil:
        made = production(pure, name, f"draft_model:{name}")
        vllm, sglang, _ = commands(made)
        assert vllm[2] == name and json.loads(vllm[-1])["model"] == name
        assert sglang[4] == name and sglang[sglang.index("--speculative-draft-model-path") + 1] == name
        for command in (server["command"] for server in made["servers"]):
            asked = ["sh", "-c", f"printf '%s\\0' {command}"]
            said = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
            assert said.split("\0")[:-1] == shlex.split(command)
    assert not ran.exists()
    keys = [name for name in HOSTILE if any(ord(sign) < 32 or sign in "\u200b\u202e\ufeff\u2028" for sign in name)]
    for name in ("--trust-remote-code", "-x", "", "a\tb", "x" * 401, "a\nb", "\x03", *keys):
        for target, drafter in ((name, "ngram"), ("Qwen/Qwen3-8B", f"draft_model:{name}")):
            assert production(pure, target, drafter)["servers"] == []
