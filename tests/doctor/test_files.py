"""What doctor reads before any weights, of folders and a hub, in a process whose modules show what it imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT
from tests.helpers.heads import HEADS
from tests.helpers.hub import config_hub
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import DRAFT

RUN = """
import json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from engine.cli.main import main

answers = []
for target, drafter, token in json.loads(sys.argv[1]):
    os.environ["HF_TOKEN"] = token
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["doctor", "--files-only", "--json", "--target", target, "--drafter", drafter])
    answers.append((status, json.loads(out.getvalue() or "null"), err.getvalue()))
print(json.dumps([answers, [name for name in ("torch", "transformers") if name in sys.modules]]))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What doctor answers to each case, what the process imported, and the hub with what it sent."""
    cases = {
        "here": (str(TRAINED), f"eagle3:{HEADS['eagle3']}", ""),
        "on the hub": ("owner/target", "eagle3:owner/head", ""),
        "a draft model": ("owner/target", "draft_model:owner/draft", ""),
        "gated": ("owner/gated", "eagle3:owner/head", ""),
        "not accepted": ("owner/target", "eagle3:owner/gated", "hf_of_another_account"),
        "missing": ("owner/nonesuch", "ngram", ""),
        "no such version": ("owner/target@v9", "ngram", ""),
    }
    folders = {"owner/target": TRAINED, "owner/head": HEADS["eagle3"], "owner/draft": DRAFT, "owner/gated": TRAINED}
    with pytest.MonkeyPatch.context() as patch, config_hub(patch, folders, frozenset({"owner/gated"})) as running:
        cache = str(tmp_path_factory.mktemp("hub"))
        environment = {**os.environ, "HF_ENDPOINT": running.address, "HF_HUB_CACHE": cache, "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", RUN, json.dumps(list(cases.values()))]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers, imported = json.loads(done.stdout)
        yield dict(zip(cases, answers, strict=True)), imported, running


def test_the_files_are_checked_without_torch(hub: Any) -> None:
    """Three seconds of imports before an answer that takes a tenth of one."""
    answers, imported, _ = hub
    status, report, _ = answers["here"]
    assert (status, imported) == (0, [])
    assert [finding["check"] for finding in report["findings"]] == ["format", "trained for", "tensors"]


def test_of_a_hub_repository_only_headers_and_small_files_are_fetched(hub: Any) -> None:
    """Gigabytes would be downloaded to find out that a head cannot work."""
    answers, _, running = hub
    status, report, said = answers["on the hub"]
    here = answers["here"][1]
    assert (status, said) == (0, ""), report
    assert [finding["check"] for finding in report["findings"]] == [entry["check"] for entry in here["findings"]]
    names = {name for repository, name in running.sent if repository == "owner/head"}
    assert names == {"config.json", "model.safetensors"}
    size = (HEADS["eagle3"] / "model.safetensors").stat().st_size
    assert running.sent["owner/head", "model.safetensors"] < size / 10, "headers, of two checks"


def test_tokenizers_are_fetched_where_tokens_are_compared(hub: Any) -> None:
    """A draft model on the hub with another vocabulary would pass; or a head's check wait for 30 MB."""
    answers, _, running = hub
    status, report, _ = answers["a draft model"]
    assert status == 0 and any(finding["check"] == "vocabulary" for finding in report["findings"])
    assert running.sent["owner/draft", "tokenizer.json"] == Path(DRAFT / "tokenizer.json").stat().st_size
    assert running.sent["owner/target", "tokenizer.json"] and not running.sent["owner/head", "tokenizer.json"]


@pytest.mark.parametrize("case", ["gated", "not accepted"])
def test_a_gated_repository_is_a_finding_with_its_remedy(hub: Any, case: str) -> None:
    """Whoever has not accepted a licence would read about an error of the network."""
    answers, _, running = hub
    status, report, _ = answers[case]
    assert status == 1 and report["first"]["check"] == "access" and report["first"] in report["findings"], report
    assert f"{running.address}/owner/gated" in report["first"]["change"] and "HF_TOKEN" in report["first"]["change"]


@pytest.mark.parametrize(
    ("case", "words"), [("missing", "no repository 'owner/nonesuch'"), ("no such version", "no revision 'v9'")]
)
def test_what_is_not_there_could_not_be_checked(hub: Any, case: str, words: str) -> None:
    """A typo would be reported as a fault of the model, or as a traceback."""
    status, report, said = hub[0][case]
    assert (status, report) == (2, None)
    assert said.startswith("could not check: ") and words in said and said.count("\n") == 1
