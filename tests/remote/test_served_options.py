"""What this project tells people to give a server, against recordings of the servers' own parsers."""

import ast
import gzip
import json
import re
import shlex
from itertools import dropwhile

import pytest

from engine.drafters import RULES
from engine.remote.served_options import CHECKED, SERVED, option_words
from tests.helpers import FIXTURES, ROOT
from tests.helpers.pure_js import pure_js

SAME = ["ngram", "draft_model:OWNER/HEAD", "eagle3:OWNER/HEAD", "dflash:OWNER/HEAD"]  # in a remedy and in Decide
FILES = {name: FIXTURES / "server_options" / f"{name}.json.gz" for name in SERVED}
PARSERS = {name: json.loads(gzip.decompress(path.read_bytes())) for name, path in FILES.items()}


def check(name: str, command: str) -> None:
    """Raises KeyError, ValueError or AssertionError if that server's parser would refuse the options in it."""
    options, _, file = command.partition(", with ")
    parser, left = PARSERS[name], iter(dropwhile(lambda word: not word.startswith("--"), shlex.split(options)))
    configs = [json.loads(file.removesuffix(" in it"))["speculative_config"]] if file else []
    for option in left:
        number, kind, choices = parser["options"][option]
        value = {"int": int, "float": float}.get(kind, str)(next(left)) if number != 0 else ""
        assert not choices or {*str(value).split(",")} <= {*choices}, (option, value)
        configs += [json.loads(value)] if str(value).startswith("{") else []
    for config in configs:
        fields = parser["configs"][config.pop("method", None) or config.pop("decoding_type")]
        for field, value in config.items():
            assert type(value).__name__ in fields[field].lower() or repr(value) in fields[field], config


@pytest.mark.parametrize("name", SERVED)
def test_a_server_takes_what_the_doctor_says(name: str) -> None:
    """An owner would add an option that the server does not have, and it would not start."""
    parser = PARSERS[name]
    assert (parser["version"], parser["date"]) == (SERVED[name]["version"], CHECKED)
    for kind in SERVED[name]["options"]:
        check(name, option_words(name, kind))
    known = {*parser["options"], *parser.get("environment", ()), *parser.get("configs", {}).get("ngram", ())}
    for path in (ROOT / "engine" / "doctor" / "servers").glob("*.py"):
        texts = [str(node.value) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        said = {*re.findall(r"--[\w-]+|[A-Z]+_[A-Z_]+|num_\w+", " ".join(text for text in texts if name in text))}
        assert said <= known, (path.name, said - known)


def test_decide_says_the_same_and_each_server_takes_it() -> None:
    """The page and the doctor would answer one question differently, or a copied command would not start."""
    params = {"max_new_tokens": 8, "temperature": 0, "top_p": 1, "top_k": 0, "seed": 0, "stop": []}
    header = {"model": {"name": "Qwen/Qwen3-8B@main"}, "prompt": {"text": "p"}, "spec": {"params": params}}
    with pure_js("tabs/production.js") as call:
        drafters = [*SAME, "ngram:2", "hybrid:ngram+draft_model:a/b", "eagle3:a/b-speculator@v1"]
        ruled = [drafter + rule for rule in RULES for drafter in drafters if drafter[:5] != "ngram"]
        for drafter in [*drafters, *ruled]:
            for made in call("productionOf", header, {"drafter": drafter, "k": 4})["servers"]:
                check(made["name"], made["command"] or "")
                remedy = option_words(made["name"], drafter.partition(":")[0])
                assert drafter not in SAME or made["command"].endswith(f" {remedy}")
        for rule in ("", *RULES):
            servers = call("productionOf", header, {"drafter": SAME[2] + rule, "k": 4})["servers"]
            made = {server["name"]: server["command"] for server in servers}
            assert rule[1:] == "".join(re.findall('"draft_sample_method": "(.*)"', made["vLLM"]))
            assert rule[1:] == "".join(re.findall("--spec-draft-sampling (.*)", made["llama.cpp"]))
            assert ("--speculative-use-rejection-sampling" in made["SGLang"]) == (rule == "~probabilistic")
        note = call("productionOf", header, {"drafter": SAME[2], "k": 4, "perStep": 2.345})["asIf"]
        fields = re.search('(?<=vLLM with )"rejection_sample_method".*? in ', note)[0].removesuffix(" in ")
        check("vLLM", f'--speculative-config \'{{"method": "eagle3", {fields}}}\'')
        check("llama.cpp", re.search("--spec-synth-len [0-9.]+[0-9]", note)[0])
        assert note.count("2.3") == 4  # the environment of SGLang is in no parser
    check("vLLM", re.findall("vllm serve .*", (ROOT / "docs" / "servers.md").read_text().replace("\\\n", ""))[1])
