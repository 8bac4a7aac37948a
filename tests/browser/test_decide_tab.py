"""The tab "Decide": money to the cent, commands that a shell splits as they were meant, and the tab in a real page."""

from __future__ import annotations

import ast
import json
import math
import random
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.race_view import FOLDER
from app.recorded import RACES
from engine.metrics import cost_per_million, lane_metrics
from engine.recordings.recording import events_of, read
from tests.helpers.made_races import a_race
from tests.helpers.page_browser import UNREADABLE, open_tab
from tests.helpers.race_pages import HOSTILE, feed, words

pytestmark = pytest.mark.browser
SCRIPTS = ("text.js", "model.js", "board.js", "money.js", "production.js")
CLAIMS = {
    "100 tokens/s at $5 an hour": "$0.01389 / 1k, $13.89 / 1M",
    "250 tokens/s at $5 an hour": "$0.00556 / 1k, $5.56 / 1M",
    "10M tokens a day": "$138.89 → $55.56",
    "saved a year": "$30,417 (60.0 % stands)",
    "GPUs for it, 24 hours": "1.16 → 0.46 (27.8 h → 11.1 h)",
    "rented whole": "2 → 1 GPUs: $240.00 → $120.00 a day, $43,800 a year",
    "145 → 424 tokens/s at $5 an hour": "$9.58 → $3.28 / 1M, 65.8 % less",
    "gpt-oss-120b, EAGLE-3 at $41.62 an hour": "right: $4.41 → $3.56, 19.4 % less. But that is the price of eight "
    "GPUs, and the study used one: about $0.55 → $0.44",
}
"""The sources' figures, corrected by hand: what the page's own functions must come to."""
PARAMS = {"max_new_tokens": 64, "temperature": 0.8, "top_p": 0.9, "top_k": 5, "seed": 7, "stop": ["\n"]}


@pytest.fixture(scope="module")
def pure(browser: Any) -> Iterator[Any]:
    """A page that has the functions alone."""
    page = browser.new_page()
    source = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    page.set_content(f"<script>{source}</script>")
    yield page
    page.close()


def production(
    pure: Any,
    target: str,
    drafter: str,
    k: Any = 5,
    drafted: tuple[int, ...] = (),
    prompt: str = "p",
    chat: bool = True,
) -> dict[str, Any]:
    header = {"model": {"name": target}, "prompt": {"text": prompt, "chat": chat}, "spec": {"params": PARAMS}}
    steps = [{"num_drafted": n} for n in drafted]
    return pure.evaluate("given => productionOf(...given)", [header, {"drafter": drafter, "k": k}, steps])


def commands(made: dict[str, Any]) -> list[list[str] | None]:
    """Of every server, its command's words."""
    return [shlex.split(each["command"]) if each["command"] else None for each in made["servers"]]


def test_the_corrected_figures_are_the_true_ones(pure: Any) -> None:
    """The page would correct others with a figure that is itself wrong by a cent."""
    assert {what: true for what, _, true in pure.evaluate("sourceFigures()")} == CLAIMS


def test_money_is_what_its_formulas_say(pure: Any) -> None:
    """A cost that is not the engine's; part of a machine that nobody rents; a user or a goal that is not served."""
    rng = random.Random(1)
    for _ in range(200):
        plain, fast = sorted(math.exp(rng.uniform(1, 7)) for _ in range(2))
        day = {"dollars": rng.uniform(0.1, 50), "tokens": math.exp(rng.uniform(5, 24)), "hours": rng.uniform(1, 24)}
        slow, quick = (pure.evaluate("given => dayOf(...given)", [speed, day]) for speed in (plain, fast))
        saved = pure.evaluate("given => savedBy(...given)", [slow, quick])
        assert slow["perMillion"] == pytest.approx(cost_per_million(plain, day["dollars"]))
        assert slow["byWork"] == pytest.approx(slow["perMillion"] * day["tokens"] / 1e6)
        assert slow["whole"] >= 1 and slow["whole"] - 1 <= slow["machines"] <= slow["whole"] + 1e-6
        assert slow["rented"] == pytest.approx(slow["whole"] * day["hours"] * day["dollars"])
        assert saved["share"] == pytest.approx(1 - plain / fast) == pytest.approx(1 - quick["byWork"] / slow["byWork"])
        assert saved["byWorkYear"] == pytest.approx(365 * (slow["byWork"] - quick["byWork"]))
        users, wanted = pure.evaluate("([s, w]) => [usersAt(s, w), w]", [fast, rng.uniform(1, 90)])
        assert users * wanted <= fast * (1 + 1e-6) < (users + 1) * wanted * (1 + 1e-5)
        prefill, goal_s, goal = rng.uniform(0, 1), rng.uniform(1.1, 9), rng.randrange(1, 999)
        lane, asked = {"tokensPerS": plain}, [prefill, goal, goal_s]
        told, need = pure.evaluate(
            "([lane, prefill, n, s]) => { const need = speedupNeeded(lane, prefill, n, s); "
            "return [Number(needWords(need)), need]; }",
            [lane, *asked],
        )
        assert prefill + goal / (plain * need) == pytest.approx(goal_s)
        assert need <= told + 1e-9 < need + 0.011
    assert pure.evaluate("speedupNeeded({tokensPerS: 50}, 2, 10, 2)") is None
    assert pure.evaluate("Object.values(dayOf(50, {dollars: null, tokens: 1, hours: 1}))").count(None) == 3


def test_a_price_is_that_of_the_device(pure: Any) -> None:
    """A laptop, or a GPU whose price nobody looked up, would be given another one's price."""
    asked = "name => listPrice({ type: 'cuda', name })?.dollars ?? null"
    priced = {
        name: pure.evaluate(asked, name)
        for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB", "NVIDIA H200",
                     "NVIDIA B200")
    }  # fmt: skip
    assert len(set(priced.values())) == len(priced) and all(0.3 < price < 10 for price in priced.values())
    for name in ("NVIDIA GH200 480GB", "NVIDIA L40", "NVIDIA T400", "NVIDIA GeForce RTX 4090", "AMD Radeon H1000"):
        assert pure.evaluate(asked, name) is None
    assert pure.evaluate("listPrice({ type: 'cpu', name: 'NVIDIA H100' })") is None


def test_each_drafter_gets_its_own_commands_or_none(pure: Any) -> None:
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
    assert json.loads(vllm[-1])["method"] == "draft_model" and "STANDALONE" in sglang
    assert llama[llama.index("--spec-type") + 1] == "ngram-simple,draft-simple"
    assert commands(production(pure, "gemma-3-270m", "eagle3:./head"))[:2] == [None, None]
    shipped = production(pure, "gemma-3-270m", "hybrid:ngram+eagle3", "auto", (0, 3, 5, 5, 9, 0))
    vllm, *_ = commands(shipped)
    assert vllm[2] == "google/gemma-3-270m" and json.loads(vllm[-1])["method"] == "ngram"
    assert json.loads(vllm[-1])["num_speculative_tokens"] == 5
    assert "5 is the median of the steps that drafted here (4 of 6)" in shipped["notes"][0]
    assert json.loads(commands(production(pure, target, "ngram", "auto", (0, 0)))[0][-1])["num_speculative_tokens"] == 1
    for name, drafter in (("gemma-3-270m", "eagle3"), ("gemma-3-270m", "dflash"), (target, "synthetic:0.8"),
                          (target, "synthetic:0.8+ngram"), (target, "none"), (target, "medusa:x"),
                          ("random:Qwen/Qwen3-8B", "ngram")):  # fmt: skip
        made = production(pure, name, drafter)
        assert made["servers"] == [] and made["client"] is None and len(made["notes"]) == 1


def test_no_name_breaks_out_of_its_quotes(pure: Any, tmp_path: Path) -> None:
    """A stranger's recording would put a command of its own, an option or a key press into a visitor's terminal."""
    ran = tmp_path / "ran"
    evil = [f"a'; touch {ran}; '", f"$(touch {ran})", f"`touch {ran}`", f"a && touch {ran}", f'"; touch {ran}; "',
            "a\\'b", "~/x", "*", "!!", "a b", "{a,b}", "Größe/模型", "%s", "a/../b"]  # fmt: skip
    for name in evil:
        made = production(pure, name, f"draft_model:{name}", prompt=name)
        vllm, sglang, _ = commands(made)
        assert vllm[2] == name and json.loads(vllm[-1])["model"] == name
        assert sglang[4] == name and sglang[sglang.index("--speculative-draft-model-path") + 1] == name
        for each in [*(server["command"] for server in made["servers"]), made["client"]["curl"]]:
            asked = ["sh", "-c", f"printf '%s\\0' {each}"]
            said = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
            assert said.split("\0")[:-1] == shlex.split(each)
        assert json.loads(shlex.split(made["client"]["curl"])[-1])["messages"][0]["content"] == name
    assert not ran.exists()
    keys = [name for name in HOSTILE if any(ord(sign) < 32 or sign in "\u200b\u202e\ufeff\u2028" for sign in name)]
    for name in ("--trust-remote-code", "-x", "", "a\tb", "x" * 401, "a\nb", "\x03", *keys):
        for target, drafter in ((name, "ngram"), ("Qwen/Qwen3-8B", f"draft_model:{name}")):
            assert production(pure, target, drafter)["servers"] == []


def test_the_client_asks_for_this_race(pure: Any) -> None:
    """Python that does not run, or a request with another prompt or other settings."""
    prompt = 'it\'s "here"\n\\n ${x} `y` \u2028 é 👩\u200d💻 \x7f\x9b\u202e end'
    for chat in (True, False):
        client = production(pure, "Qwen/Qwen3-8B", "ngram", prompt=prompt, chat=chat)["client"]
        assert all(sign.isprintable() or sign == "\n" for sign in client["curl"] + client["python"])
        words_ = shlex.split(client["curl"])
        body = json.loads(words_[-1])
        call = next(node for node in ast.walk(ast.parse(client["python"]))
                    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "create")  # fmt: skip
        given = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        assert {**given.pop("extra_body"), **given} == body and body["top_k"] == 5 and body["stop"] == ["\n"]
        sent = body["messages"][0]["content"] if chat else body["prompt"]
        assert sent == prompt and words_[1].endswith("/v1/chat/completions" if chat else "/v1/completions")
        assert (body["max_tokens"], body["temperature"], body["top_p"], body["seed"]) == (64, 0.8, 0.9, 7)
    long = production(pure, "Qwen/Qwen3-8B", "ngram", prompt="x" * 5000)["client"]
    assert "xxxx" not in long["curl"] + long["python"]


def test_memory_is_what_its_formula_says(pure: Any) -> None:
    """A cache for another number of users or tokens, weights counted once a user, or bytes in a wrong unit."""
    units = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    rng = random.Random(4)
    for _ in range(100):
        weights, cache = (int(math.exp(rng.uniform(0, top))) for top in (28, 14))
        num_tokens, num_users = rng.randint(2, 9000), rng.randint(0, 40)
        given = [{"weights": weights, "cache_per_token": cache}, num_tokens, num_users]
        (_, *held), *caches = pure.evaluate("given => memoryOf(...given)", given)["rows"]
        users = sorted({1, max(1, num_users)})
        expected = [[weights] * len(users), *([cache * n * each for each in users] for n in (num_tokens, 8192))]
        for shown, true in zip([held, *(cells for _, *cells in caches)], expected, strict=True):
            said = [float(number) * units[unit] for number, unit in (cell.split(" ") for cell in shown)]
            assert said == pytest.approx(true, rel=0.006)
    none = pure.evaluate("memoryOf({weights: 0, cache_per_token: 0}, 9, 3)")
    assert none == {"rows": [], "words": "The drafter takes no memory: no weights, no cache."}


def table(page: Any, ref: str = "decideRows") -> dict[str, list[str]]:
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator(f"[data-ref={ref}] tr").all()]
    return {row[0]: row[1:] for row in rows}


def test_the_tab_of_a_recorded_race(browser: Any, server: Any) -> None:
    """Figures of another race; dollars without a price; a price that is forgotten; a button that copies nothing; a tab
    that sends the race away, scrolls sideways, or cannot be read or reached."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        reduced_motion="reduce",
        permissions=["clipboard-read", "clipboard-write"],
    )
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    open_tab(tab, server)
    tab.set_input_files("[data-ref=file]", RACES / "csv_to_json.json")
    tab.wait_for_function("window.photofinish.state.race === 'file:csv_to_json.json'")
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(request.url))
    tab.focus("#pf-tab-charts")
    tab.keyboard.press("ArrowRight")
    assert tab.get_attribute("#pf-tab-decide", "aria-selected") == "true"
    sent.clear()  # what the tab of charts, passed on the way, asked for
    race = read(RACES / "csv_to_json.json")
    speeds = {name: lane_metrics(events_of(race), name).tokens_per_s for name in ("plain", "baseline", "speculative")}
    plain, fast = max(speeds["plain"], speeds["baseline"]), speeds["speculative"]
    told = table(tab)
    assert told["tokens a second"] == [f"{plain:.1f}", f"{fast:.1f}", f"{fast / plain:.2f}×"]
    assert told["1,000,000 tokens"][:2] == ["enter a price"] * 2 and "$" not in words(tab, "decideSays")
    assert tab.input_value("[data-decide=dollars]") == "" and tab.is_visible("[data-ref=ribbon]")
    tab.fill("[data-decide=hours]", "30")
    assert "30 is not above 0 and at most 24; 24 is taken." in words(tab, "decideCaution")
    tab.fill("[data-decide=hours]", "24")
    tab.fill("[data-decide=dollars]", "41.62")
    cost = [f"${cost_per_million(speed, 41.62):.2f}" for speed in (plain, fast)]
    assert table(tab)["1,000,000 tokens"] == [*cost, f"{100 * (1 - plain / fast):.1f} %"]
    assert f"{plain:.1f} tok/s × $41.62 / 3,600 = {cost[0]}" in words(tab, "decideFormula")
    its, num_tokens = race["drafter_bytes"]["speculative"], len(race["prompt"]["token_ids"]) + 160
    memory = table(tab, "memoryRows")
    assert memory["weights"][0] == f"{its['weights'] / 1e6:.3g} MB"
    assert memory[f"cache of {num_tokens} tokens"][0] == f"{its['cache_per_token'] * num_tokens / 1e3:.3g} kB"
    assert memory["cache of 8,192 tokens"][0] == f"{its['cache_per_token'] * 8192 / 1e6:.3g} MB"
    assert words(tab, "memoryUsers").split()[0] == told["users at 30 tok/s each"][1]
    for button in tab.locator("[data-ref=serve] button").all():
        button.click()
        shown = button.locator("xpath=ancestor::section[1]//pre").text_content()
        assert tab.evaluate("navigator.clipboard.readText()") == shown and shown
    tab.click("[data-ref=client] summary")
    tab.click(".pf-decide-sources summary")
    assert tab.locator("[data-ref=sources] tr").count() == len(CLAIMS)
    for size in ((1280, 800), (390, 844)):
        tab.set_viewport_size({"width": size[0], "height": size[1]})
        tab.wait_for_timeout(200)
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        assert tab.evaluate(UNREADABLE) == []
    tab.wait_for_timeout(300)
    assert [url for url in sent if "queue/join" in url or "/run/" in url] == []
    tab.reload()
    tab.wait_for_function("window.photofinish?.state.totals[1] > 0", timeout=30_000)
    tab.click("#pf-tab-decide")
    assert tab.input_value("[data-decide=dollars]") == "41.62" and words(tab, "priceSource") == "your price"
    assert errors == []
    context.close()


def test_what_is_not_to_be_quoted_is_said_beside_the_money(open_page: Any) -> None:
    """A saving from a text that loops, from noise, or from drafts that are made up; markup from a stranger's names; and
    figures of a race that still runs."""
    page = open_page(reduced_motion="reduce")
    page.click("#pf-tab-decide")
    assert page.is_hidden("[data-ref=decide]")
    gpu = {"type": "cuda", "name": "NVIDIA H100 80GB HBM3", "threads": None}
    feed(page, a_race([(3, 3)] * 12, token_ids=[1, 2, 3, 50] * 12, header={"device": gpu}), race_id="loop")
    assert "repeats itself" in words(page, "decideCaution")
    assert page.input_value("[data-decide=dollars]") == "3.99" and words(page, "priceSource").startswith("about")
    even, rng = a_race([(1, 0)] * 30, plain_s=0.01, step_s=0.01), random.Random(2)
    for event in (event for event in even["events"] if event["type"] == "step"):
        event["verify_s"] *= rng.uniform(0.7, 1.3)
    feed(page, even, race_id="even")
    assert "within the noise" in words(page, "decideCaution")
    feed(page, a_race([(3, 2)] * 8, drafter="eagle3:a/b"), race_id="of before")
    assert "not known from this recording" in words(page, "serveNotes")
    assert page.is_hidden("[data-ref=memory]") and words(page, "memoryWords") == ""
    name = "<img src=x onerror=window.ran=1>"
    stranger = a_race([(3, 2)] * 8, drafter="synthetic:0.8", header={"synthetic": ["speculative"]})
    feed(page, json.loads(json.dumps(stranger).replace('"a-model"', json.dumps(name))), race_id="made up")
    assert "made up" in words(page, "decideCaution") and "made up" in words(page, "serveNotes")
    assert page.locator("[data-ref=serve] pre").count() == 0
    hostile = a_race([(3, 2)] * 8, drafter="draft_model:<img src=x onerror=window.ran=1>")
    feed(page, json.loads(json.dumps(hostile).replace('"a-model"', json.dumps(name))), race_id="hostile")
    assert name in page.text_content("[data-ref=serve] pre >> nth=0")
    assert page.locator("#pf-panel-decide img").count() == 0 and page.evaluate("window.ran") is None
    assert page.problems == []
