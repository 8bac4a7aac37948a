"""Planted faults of servers, each of which the doctor must name first; and healthy pairs, where it must find none."""

import asyncio
import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import comb

import pytest
from httpx import AsyncClient

from engine.cli.main import main
from engine.core.errors import RaceError, UsageError
from engine.core.spec import SamplingParams
from engine.doctor import servers as doctor
from engine.doctor.findings import Finding, first, is_broken
from engine.doctor.servers import check_servers, sampling, server_worth, thorough
from engine.doctor.servers.compare_texts import texts
from engine.doctor.servers.pair import Pair, Server
from engine.doctor.servers.sampling import cells, fisher, repeats
from engine.doctor.servers.scored import NUM_RANKS
from engine.progress import silent
from engine.remote.client import RemoteError
from engine.remote.endpoint import Endpoint
from engine.remote.odds import Token, tokens_in
from engine.remote.reply import Reply
from engine.remote.request import Question
from tests.helpers.loopback_language import Language, speaking
from tests.helpers.wire import places

PROMPTS = (Question("Once upon a time"), Question("def read(path):"))
PARAMS = SamplingParams(max_new_tokens=16)
PLAIN, SPEC = Language(step_s=0.006), Language(k=3, step_s=0.006)
INVARIANT = "VLLM_BATCH_INVARIANT"
REFUSED = frozenset({"schema", "tools", "chat"})
METERED, SLOW = replace(SPEC, keeps=2, reports=False, refuses=REFUSED), pytest.mark.slow
QUICK_PLAIN, QUICK = Language(), Language(k=3)


def changed(*more: str, **fields: object) -> Language:
    return replace(QUICK, **fields, ignores=frozenset(more))


# Name -> the plain server, the speculative one; the first finding's check; words of its remedy.
FAULTS: dict[str, tuple[Language, Language, str, str]] = {
    "another model": (QUICK_PLAIN, changed(root="maker/other", model="o"), "model", "Serve the same model"),
    "another tokenizer": (QUICK_PLAIN, changed(shift=1), "tokenizer", "--tokenizer"),
    "another chat template": (QUICK_PLAIN, changed(template="<|user|>"), "chat template", "--chat-template"),
    "chat on one side": (QUICK_PLAIN, changed(refuses=frozenset({"chat"})), "chat template", "--chat-template"),
    "speculation off": (QUICK_PLAIN, QUICK_PLAIN, "speculation", "--speculative-config"),
    "a head that is never right": (QUICK_PLAIN, changed(keeps=0), "acceptance", "doctor --target"),
    "the same by metrics alone": (QUICK_PLAIN, changed(keeps=0, reports=False), "acceptance", "doctor --target"),
    "temperature ignored": (QUICK_PLAIN, changed("temperature"), "temperature", "temperatures above 0"),
    "top_p ignored": (QUICK_PLAIN, changed("top_p"), "top_p", "top_p below 1"),
    "one seed for all": (QUICK_PLAIN, changed("seeds"), "seed", "ignores the seed"),
    "a wrong token": (QUICK_PLAIN, changed("rank"), "texts", "send the finding"),
    "other weights": (QUICK_PLAIN, changed("rank", "weights"), "texts", "same weights"),
    "JSON schema broken": (QUICK_PLAIN, changed("schema"), "JSON schema", "Turn speculation off"),
    "JSON schema refused": (QUICK_PLAIN, changed(refuses=frozenset({"schema"})), "JSON schema", "Turn speculation off"),
    "another token in a batch": (QUICK_PLAIN, changed("batch"), "batches", "rounding does not explain it"),
    "another token from the cache": (QUICK_PLAIN, changed("cache"), "cold and warm", "rounding does not explain it"),
    "tool call broken": (QUICK_PLAIN, changed("tools"), "tool calls", "Turn speculation off"),
}  # fmt: skip
DOUBTS: dict[str, tuple[Language, Language, str, str]] = {
    "seed ignored": (QUICK_PLAIN, changed("seed"), "seed", "Do not rely on seeds"),
    "a plain server that drafts": (QUICK, QUICK, "plain lane", "without speculation"),
    "no log-probabilities": (replace(QUICK_PLAIN, reports=False), changed("rank"), "texts", "log-probab"),
    "no token ids": (replace(QUICK_PLAIN, names_tokens=False), changed("rank", names_tokens=False),
                     "texts", "name their tokens"),
    "a plain server that contradicts itself": (changed("rank", k=0), QUICK, "texts", INVARIANT),
    "rounding by the batch": (replace(QUICK_PLAIN, margin=0.1), changed("batch", margin=0.1), "batches", INVARIANT),
    "a prefix cache on one side": (QUICK_PLAIN, changed(caches=False), "prefix cache", "--enable-prefix-caching"),
}  # fmt: skip


SHOWN_BY = {"temperature ignored": 0, "top_p ignored": 2}  # fault -> which of SETTINGS shows it


@pytest.fixture(autouse=True)
def few_samples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to see what is ignored where that is the test's subject."""
    name = request.node.name
    if shown := [sampling.SETTINGS[i] for words, i in SHOWN_BY.items() if words in name]:
        monkeypatch.setattr(sampling, "SETTINGS", shown)
    monkeypatch.setattr(sampling, "NUM_SAMPLES", 48 if shown or "[all]" in name else 3)
    monkeypatch.setattr(sampling, "NUM_SEEDS", 4)
    monkeypatch.setitem(doctor.batches.__globals__, "NUM_AT_ONCE", 8)  # the module's name is its function's
    monkeypatch.setattr(server_worth, "NUM_REQUESTS", 3)


def until(findings: Iterator[Finding], check: str) -> list[Finding]:
    """The findings up to that check's, or to the first fault."""
    done: list[Finding] = []
    for finding in findings:
        done.append(finding)
        if finding.check == check or finding.level == "fault":
            break
    return done


@pytest.mark.parametrize("name", [*FAULTS, *DOUBTS])
def test_what_is_wrong_is_named_first(name: str) -> None:
    """A server that is broken, and its owner learns only that it is slow or that texts differ; or what real, healthy
    servers do as well would be called a fault, or pass in silence."""
    plain, spec, check, remedy = {**FAULTS, **DOUBTS}[name]
    with speaking(plain, spec) as endpoints:
        finding = first(until(check_servers(endpoints, PROMPTS, PARAMS), check))
    assert finding and (finding.level, finding.check) == ("fault" if name in FAULTS else "doubt", check), finding
    assert remedy in finding.change, finding


@pytest.mark.parametrize(
    ("plain", "spec"),
    [
        (PLAIN, SPEC),
        pytest.param(*(replace(lane, thinks=True) for lane in (PLAIN, SPEC)), marks=SLOW),
        pytest.param(replace(PLAIN, refuses=REFUSED), METERED, marks=SLOW),
    ],
    ids=["all", "thinking chats", "by metrics, refusing"],
)
def test_a_healthy_pair_has_neither_fault_nor_doubt(plain: Language, spec: Language) -> None:
    """A false alarm, or a key or an address in a report that is passed on."""
    chats = [Question(messages=(("user", prompt.text),)) for prompt in PROMPTS]
    with speaking(plain, spec) as endpoints:
        findings = list(check_servers(endpoints, chats if plain.thinks else PROMPTS, PARAMS))
    assert first(findings) is None, first(findings)
    assert findings[-1].check == "worth it" and "with 1, 2, 4 and 8 users" in findings[-1].says
    assert not any(secret in repr(findings) for secret in ("127.0.0.1", "key-of"))
    untested = {finding.check for finding in findings if finding.level == "untested"}
    assert "JSON schema" in untested or not (plain.refuses or plain.thinks), "ok of what nobody tested"
    assert "tool calls" in untested or not plain.refuses, "ok of what nobody tested"


def test_the_advice_is_ordered_by_what_it_is_worth() -> None:
    """What could not be tested, or other texts, would come before a measured loss of speed."""
    fault, loss, cause, texts, unknown = findings = [
        Finding("fault", "acceptance", "a", "A"), Finding("doubt", "worth it", "b", "B"),
        Finding("doubt", "plain lane", "c", "C"), Finding("doubt", "texts", "d", "D"),
        Finding("untested", "speculation", "e", "E"),
    ]  # fmt: skip
    assert first([Finding("untested", "prefix cache", "f"), *findings[::-1]]) == fault
    assert first([unknown, texts, cause, loss]) == cause and first([unknown, texts, loss]) == loss
    assert first([unknown, texts]) == texts and first([unknown]) == unknown
    assert first([Finding("untested", "prefix cache", "f"), Finding("ok", "texts", "g")]) is None


@pytest.mark.parametrize(("margin", "words"), [(0.0, "exact tie"), (0.1, "near tie")])
def test_rounding_is_no_fault_of_speculation(margin: float, words: str) -> None:
    """Every pair of real servers that round would look broken."""
    spec = changed("rank", margin=margin)
    with speaking(replace(QUICK_PLAIN, margin=margin), spec) as endpoints:
        findings = until(check_servers(endpoints, PROMPTS, PARAMS), "texts")
    assert first(findings) is None and findings[-1].check == "texts" and words in findings[-1].says, findings[-1]


def test_one_server_alone_is_examined() -> None:
    """Whoever has one server could not use the doctor; or it would be blamed for lacking a second."""
    with speaking(SPEC) as endpoints:
        report = list(check_servers(endpoints, PROMPTS, PARAMS))
    assert first(report) is None and {"speculation", "repeats", "seed", "speed"} <= {entry.check for entry in report}
    with speaking(changed(keeps=0)) as endpoints:
        named = first(until(check_servers(endpoints, PROMPTS, PARAMS), "acceptance"))
    assert named and named.check == "acceptance"


def test_a_server_that_cannot_be_reached_is_all_that_is_said() -> None:
    """A wall of errors, or the address of a server in it; or who counts no tokens be blamed for its key."""
    with speaking(QUICK_PLAIN) as (there,):
        gone = Endpoint("spec", "m", "http://127.0.0.1:9/v1", "key-of-spec")
        (finding,) = check_servers([there, gone], PROMPTS, PARAMS)
    assert (finding.level, finding.check) == ("fault", "reachable") and "lane spec" in finding.change
    assert "127.0.0.1" not in repr(finding) and "key" not in finding.says
    spoil = lambda event: event | {"usage": {"completion_tokens": 0}} if isinstance(event, dict) else event  # noqa: E731
    with speaking(replace(QUICK, spoil=spoil, names_tokens=False)) as endpoints:
        (finding,) = check_servers(endpoints, PROMPTS, PARAMS)
    assert "no token, by its usage, but text" in finding.says and "log of the server" in finding.change, "LitServe"
    with pytest.raises(UsageError, match="1 or 2 servers and at least one prompt, not 3 and 2"):
        next(check_servers([gone] * 3, PROMPTS, PARAMS))


WRONG = (None, True, -1, 10**400, float("nan"), "x", [], {}, [[]], {"text": [1]})
# What findings of each check are called that does not depend on another one.
OF_CHECKS = ("speculation", "acceptance"), ("seed",), ("sampling", "temperature", "top_p"), ("JSON schema",), \
    ("tool calls",), ("prefix cache",), ("batches",)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_wrong_json_costs_no_finding_of_another_check(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A null that nobody expects (`content` of a thinking model) would end the check-up with an internal error."""
    rng = random.Random(seed)

    def spoil(value: object) -> object:
        value = json.loads(json.dumps(value))
        if rng.random() < (0.02 if seed % 2 else 0.7) and (wheres := list(places(value))):
            container, key = rng.choice(wheres)
            container[key] = rng.choice(WRONG)
        return value

    monkeypatch.setattr(doctor, "CHECKS", doctor.CHECKS[1:-2])
    with speaking(replace(QUICK_PLAIN, spoil=spoil), replace(QUICK, spoil=spoil)) as endpoints:
        findings = list(check_servers(endpoints, PROMPTS, PARAMS))
    names = {finding.check for finding in findings}
    assert all(names.intersection(group) for group in OF_CHECKS) and not is_broken(findings), findings


@pytest.mark.parametrize("error", [AttributeError, ExceptionGroup, RaceError, RemoteError])
def test_a_check_that_raises_costs_only_itself(error: type, monkeypatch, caplog, capsys) -> None:
    """One mistake would take all findings with it, pass for "no fault", leave no trace, or show an address in one."""

    def bad(pair: Pair) -> list[Finding]:
        said = f"at {pair.plain.endpoint.url}"
        raise {ExceptionGroup: lambda: ExceptionGroup(said, [ValueError()]),
               RemoteError: lambda: RemoteError("no stream", "broken")}.get(error, lambda: error(said))()  # fmt: skip

    one, *others = [row for row in doctor.CHECKS if row[0] in ("reachable", "speculation", "repeats", "JSON schema")]
    monkeypatch.setattr(doctor, "CHECKS", [one, *others])
    with speaking(QUICK_PLAIN, QUICK) as endpoints:
        whole = list(check_servers(endpoints, PROMPTS, PARAMS))
        monkeypatch.setattr(doctor, "CHECKS", [one, ("planted", bad), *others])
        findings = list(check_servers(endpoints, PROMPTS, PARAMS))
        lanes = [f"--lane={endpoint.lane}=openai:{endpoint.url}" for endpoint in endpoints]
        assert main(["doctor", *lanes, "--model", "m"]) == 1, "a failed check passed for no fault"
    (planted,) = [finding for finding in findings if finding.check == "planted"]
    assert [finding.check for finding in findings if finding != planted] == [finding.check for finding in whole]
    assert planted.level == ("fault" if issubclass(error, RaceError) else "untested")
    assert issubclass(error, RaceError) or ("This check failed" in planted.says and "in bad" in caplog.text)
    assert "127.0.0.1" not in planted.says + caplog.text + "".join(capsys.readouterr())


@pytest.mark.parametrize(("num_served", "num_found"), [(5, 2), (12, 1)])
def test_a_limit_of_requests_is_no_fault_of_speculation(num_served: int, num_found: int, monkeypatch) -> None:
    """The owner of a gateway that serves so many requests a minute would be told that speculation is broken."""
    monkeypatch.setattr(doctor, "CHECKS", (doctor.CHECKS[0], *doctor.CHECKS[-2:]))
    with speaking(QUICK_PLAIN, replace(QUICK, num_served=num_served)) as endpoints:
        findings = [finding for finding in check_servers(endpoints, PROMPTS, PARAMS) if finding.check == "worth it"]
    assert [finding.level for finding in findings] == ["untested"] * num_found, findings
    assert all("slow down" in finding.says and "Lift" in finding.change for finding in findings)


def test_answers_without_text_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers whose answers nobody can read would pass every check of texts; or one be said to ignore the seed."""

    async def by_seed(pair: Pair, server: Server) -> list[list[tuple[int, ...]]]:
        return [[(seed, 1) if server is some[0] else () for seed in range(4)] for _ in range(3)]

    monkeypatch.setattr(sampling, "_by_seed", by_seed)
    replies = [Reply([], 3, 16, "length")] * 2
    some = [Server(Endpoint(name, "m", "http://x"), AsyncClient(), answers=(replies, replies)) for name in "ab"]
    pair = Pair(some, PROMPTS[:1], PARAMS, silent)
    gaps = [finding for check in (repeats, texts, sampling.seeds) for finding in asyncio.run(check(pair))]
    assert [gap.level for gap in gaps] == ["untested"] * 4 and "it counts 16 tokens, but no text" in gaps[0].says
    assert "no text" in gaps[-1].says


def test_it_stops_when_progress_gives_up() -> None:
    """A visitor who presses Stop would wait for a minute, and the servers go on writing."""

    class Enough(BaseException):
        pass

    def progress(text: str, share: float | None) -> None:
        if "sampling" in text:
            raise Enough

    with speaking(QUICK_PLAIN, QUICK) as endpoints, pytest.raises(Enough):
        list(check_servers(endpoints, PROMPTS, PARAMS, progress))


def test_the_command_names_the_first_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """A script could not act on it, or would be handed a key or an address."""
    plain, spec, check, _ = FAULTS["another tokenizer"]
    with speaking(plain, spec) as (one, two):
        lanes = [f"--lane=spec=openai:{two.url}", f"--lane=plain=openai:{one.url}"]
        assert main(["doctor", *lanes, "--model", "m", "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert report["lanes"] == ["plain", "spec"] and report["first"]["check"] == check
        assert main(["doctor", *lanes, "--model", "m"]) == 1
    said = "".join(capsys.readouterr())
    assert "Change first: Start both servers" in said and "127.0.0.1" not in said


BIASED, SILENT = changed("odds"), changed(reports=False)


@pytest.mark.parametrize(
    ("plain", "spec", "level"),
    [
        (QUICK_PLAIN, QUICK, "ok"),
        (QUICK_PLAIN, BIASED, "fault"),
        (replace(BIASED, k=0), BIASED, "doubt"),
        (QUICK_PLAIN, SILENT, "untested"),
    ],
)
def test_each_server_samples_what_it_reports(plain: Language, spec: Language, level: str, monkeypatch) -> None:
    """A bias too small for two samples would pass; or a server's own defaults be blamed on speculation."""
    monkeypatch.setattr(thorough, "NUM_ANSWERS", 40)
    monkeypatch.setattr(doctor, "CHECKS", [row for row in doctor.CHECKS if row[0] in ("reachable", thorough.CHECK)])
    chats = [Question(messages=(("user", prompt.text),)) for prompt in PROMPTS]
    for prompts in (PROMPTS, chats) if level in ("fault", "ok") else (PROMPTS,):
        with speaking(plain, spec) as endpoints:
            *_, finding = check_servers(endpoints, prompts, PARAMS, thorough=True)
        assert (finding.level, finding.check) == (level, thorough.CHECK), finding


TOPS = {"token_id:7": -0.1, "token_id:9": -3.0}
LISTED = [{"token": name, "logprob": odds} for name, odds in TOPS.items()]


@pytest.mark.parametrize(
    ("logprobs", "tokens"),
    [
        (  # vLLM 0.32.0, /completions
            {"tokens": ["token_id:9"], "token_logprobs": [-3.0], "top_logprobs": [TOPS]},
            [Token("token_id:9", -3.0, tuple(TOPS.items()))],
        ),
        (  # the same, chat
            {"content": [{"token": "token_id:5", "logprob": -9.0, "top_logprobs": LISTED}]},
            [Token("token_id:5", -9.0, tuple(TOPS.items()))],
        ),
        (  # llama-server b11434 with a draft model: 0 is not a log-probability
            {"content": [{"token": " a", "logprob": 0.0, "top_logprobs": []}]},
            [Token(" a")],
        ),
        (  # parts of characters have one name
            {"tokens": ["\ufffd"], "token_logprobs": [-1.0], "top_logprobs": [{"\ufffd": -1.0, "b": -2.0}]},
            [Token("\ufffd", -1.0)],
        ),
        ({"tokens": ["a"], "token_logprobs": ["x"], "top_logprobs": [None]}, [Token("a")]),
        ({"tokens": ["a"], "token_logprobs": [900.0], "top_logprobs": [{"a": 900.0}]}, [Token("a")]),  # impossible
        (None, []),
    ],
)
def test_what_a_server_did_not_measure_is_no_log_probability(logprobs: object, tokens: list[Token]) -> None:
    """Two servers would agree bit for bit in numbers that neither has computed."""
    assert tokens_in({"logprobs": logprobs}) == tokens


def test_a_small_bias_is_seen_and_none_is_not() -> None:
    """0.60 for 0.63 would pass for the same; or more than 1 of 10,000 healthy servers be called biased."""
    draw, said = random.Random(2), [0.6, 0.2, 0.1, 0.05, 0.03, 0.02]
    odds = [tuple(math.log(p) for p in (*order[:NUM_RANKS],)) for order in (said, sorted([0.3, 0.2] + [0.1] * 5)[::-1])]

    def least(bias: float) -> float:
        tokens, rank, drawn = list[Token](), 0, []
        for known in odds:
            chances = [math.exp(logprob) for logprob in known]
            chances = [chances[0] + bias, *(p * (1 - bias / (1 - chances[0])) for p in chances[1:])]
            named = tuple((f"{i}", logprob) for i, logprob in enumerate(known))
            drawn.append(([*chances, max(0.0, 1 - sum(chances))], named))
        for _ in range(9600):
            chances, named = drawn[rank > 0 and not bias]  # a distribution that depends on the token before
            rank = draw.choices(range(NUM_RANKS + 1), chances)[0]
            tokens.append(Token(f"{rank}", -1.0, named))
        return min(rate.chance for rate in thorough.rates(tokens))

    limit = sampling.FALSE_ALARM / (NUM_RANKS + 1)
    assert all(least(0.0) > limit for _ in range(5))
    assert sum(least(0.03) <= limit for _ in range(5)) >= 3


# The exact test of two servers' samples


def test_two_servers_of_one_distribution_are_seldom_called_different() -> None:
    """A healthy server would be blamed for its sampling: one study in 10,000 may be."""
    draw, least = random.Random(1), 1.0
    for _ in range(40):
        weights = [30, 20, 10, *[5] * 7]
        answers = [[draw.choices("abcdefghij", weights, k=3) for _ in range(60)] for _ in "12"]
        table = list(cells(*answers))
        least = min(least, *(cell.chance * len(table) for cell in table))
    assert least > 1e-3
    always = [["a", "a", "a"]] * 60
    assert min(cell.chance for cell in cells(answers[0], always)) < 1e-12
    assert not list(cells(always, always))


def test_the_exact_test_is_exact() -> None:
    """Its chance of a false alarm would not be what the report says."""
    for num_one, num_other in product((3, 5), (4, 6)):
        for total in range(num_one + num_other + 1):
            ways = {a: comb(num_one, a) * comb(num_other, total - a) for a in range(num_one + 1) if total - a >= 0}
            for a in (a for a, num in ways.items() if num):
                tails = [sum(n for i, n in ways.items() if keep(i)) for keep in (a.__le__, a.__ge__)]
                wanted = min(1, 2 * min(tails) / comb(num_one + num_other, total))
                assert fisher(a, total - a, num_one, num_other) == pytest.approx(wanted)
