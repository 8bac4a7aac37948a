"""How acceptance depends on the text: with the trained fixture, whose head has seen plain code and no chat. Where
findings show: on made races of two prompts."""

import re
from collections.abc import Iterator

import pytest

from engine.analysis.costs import Costs
from engine.cli.doctor import PROMPTS as OWN
from engine.core.interfaces import Draft
from engine.core.spec import SamplingParams
from engine.doctor.checkup import NOWHERE, Checkup, placed, slowest, struck, uncovered
from engine.doctor.findings import Finding, is_broken
from engine.doctor.text_kinds import template_findings, text_findings
from engine.doctor.trial import run
from engine.loading.loading import LoadedModel
from engine.studies.prompts.prompts import FilePrompt
from engine.text import encode_prompt
from engine.what_if.judged import WhatIf
from engine.what_if.tables import Table, Text
from tests.helpers.heads import HEADS
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, trained

pytestmark = pytest.mark.usefixtures("quick_races")
EAGLE3 = f"eagle3:{HEADS['eagle3']}"
PARAMS = SamplingParams(max_new_tokens=34)
THINKING = "{% if enable_thinking %}{{ 'x = 1\n' * 12 }}{% endif %}{{ messages[0]['content'] }}"
LOOP = "x = 1\n" * 8


def compiled() -> LoadedModel:
    """The trained fixture as users run models: in bfloat16, by compiled kernels where there are some."""
    return trained("bfloat16")


def compared(*texts: str) -> list[Finding]:
    prompts = [FilePrompt(i, "", text) for i, text in enumerate(texts)]
    return list(template_findings(compiled(), EAGLE3, prompts, PARAMS))


def rates(finding: Finding) -> Iterator[int]:
    return map(int, re.findall(r"(\d+)%", finding.says))


def test_a_template_that_the_head_was_not_trained_on_is_doubted_with_its_remedy() -> None:
    """A head that works in its publisher's tests and not in a chat, and nobody says why."""
    (finding,) = compared(*OWN[::2])
    plain, chat = rates(finding)
    assert (finding.check, finding.level) == ("chat template", "doubt") and plain > chat + 10, finding
    assert finding.says.count("mean acceptance length") == 2 and finding.change.startswith("Send plain text")


def test_a_chat_that_the_template_refuses_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One system message among the prompts, and nothing would be said of the drafter; or of the wrong prompt."""
    template = "{{ raise_exception('No system role') if messages[0].role == 'system' }}{{ messages[0].content }}"
    monkeypatch.setattr(compiled().tokenizer, "chat_template", template)
    chat = FilePrompt(1, "", "x", (("system", "x"), ("user", "x")))
    checkup = Checkup(str(TRAINED), "ngram")
    report = [*checkup.with_tokens(compiled, [chat, FilePrompt(2, "", PROMPTS[0])], PARAMS)]
    (refused,) = [finding for finding in report if finding.check == "prompt"]
    assert "line 1" in refused.says.casefold() and "No system role" in refused.says and not is_broken(report)
    assert {finding.prompt for finding in report} <= {None, 1} and "worth it" in {finding.check for finding in report}
    (failed,) = checkup.with_tokens(compiled, [chat], PARAMS)
    assert (failed.level, failed.check) == ("fault", "race") and "No system role" in failed.says


def test_thinking_is_tried_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reasoning model's head would be judged in the mode that is not served."""
    monkeypatch.setattr(compiled().tokenizer, "chat_template", THINKING)
    (finding,) = compared(PROMPTS[0])
    plain, on, off = rates(finding)
    assert plain == off != on, "without thinking, this template is the plain text"
    words = r"plain text at .*; in the chat template with thinking on at .*; .* with thinking off at"
    assert re.search(words, finding.says)


def test_a_model_without_a_template_is_not_examined_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default model's check-up would take three times as long for nothing."""
    monkeypatch.setattr(compiled().tokenizer, "chat_template", None)
    assert compared(PROMPTS[0]) == []


def test_kinds_and_loops_are_evidence() -> None:
    """One share of all texts hides that a drafter helps with one kind alone, or only where the text repeats itself."""
    texts = {"loops": LOOP, "code": PROMPTS[0], "more code": PROMPTS[1]}
    encoded = [(kind, encode_prompt(compiled().tokenizer, text)) for kind, text in texts.items()]
    trial = run(compiled(), EAGLE3, encoded, PARAMS)
    findings = {finding.check: finding for finding in text_findings(trial)}
    assert {evidence.level for evidence in findings.values()} == {"ok"}
    shares = dict(re.findall(r"(loops|code|more code) (\d+)%", findings["by kind"].says))
    for number, kind in enumerate(texts):
        right = [is_right for i, _, is_right in trial.positions() if i == number]
        assert int(shares[kind]) == round(100 * sum(right) / len(right))
    assert list(map(int, shares.values())) == sorted(map(int, shares.values()), reverse=True)
    assert re.match(r"[1-3] of 3 texts repeat themselves", findings["loops"].says)


COSTS = Costs((1.0,) * 5, {"d": (0.0,) * 5})


def raced(token_ids: tuple[int, ...], *drafts: tuple[int, ...]) -> WhatIf:
    text = Text((1,), token_ids, len(token_ids) + 9)
    return WhatIf(text, {"d": Table("d", "d", tuple(map(Draft, drafts)))}, COSTS)


RIGHT = raced((5, 6, 7, 8), (5, 6), (), (), (9,))  # two steps: the first keeps all of its guesses, the second one none
EMPTY = raced((5, 6), (), ())


def test_a_finding_shows_at_a_step_of_the_race_itself() -> None:
    """A link to a step that the race does not have: a wrong guess at a position at which no step began."""
    assert struck([EMPTY, RIGHT], "d") == (1, 3)
    assert struck([EMPTY], "d") == NOWHERE
    assert struck([raced((5, 6, 7), (5, 6), (9,), (9,))], "d") == NOWHERE


def test_the_first_token_that_cannot_be_drafted() -> None:
    """A link to a token that the head can draft."""
    assert uncovered([EMPTY, RIGHT], {5, 6, 8}) == (1, 2)
    assert uncovered([EMPTY], {5, 6}) == uncovered([EMPTY], None) == NOWHERE


def test_the_slowest_prompt_and_what_is_ok() -> None:
    """A link to a prompt that gains, or from a line without anything to see."""
    assert slowest([EMPTY, RIGHT], [2.0, 1.5], "d") == (1, None)
    assert slowest([EMPTY, RIGHT], [1.0, 4.0], "d") == (0, None)
    findings = placed([Finding("ok", "a", ""), Finding("doubt", "b", "")], (1, None), [0, 2])
    assert [(finding.prompt, finding.position) for finding in findings] == [(None, None), (2, None)]
