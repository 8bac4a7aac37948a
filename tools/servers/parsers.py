"""What a server's own parser takes, into tests/fixtures/server_options: python -m tools.servers.parsers NAME FOLDER

FOLDER has the servers that `python -m tools.servers` installs there; what `pip install --no-deps --target FOLDER/sglang
sglang==0.5.23` brings, which borrows vLLM's packages; and tgi, a clone of TGI. TensorRT-LLM's was read by hand."""

import gzip
import json
import re
import subprocess
import sys
import time

from engine.remote.served_options import SERVED
from tests.helpers import FIXTURES

DUMP = """
import argparse, importlib.metadata, json, sys
from unittest.mock import MagicMock
def dump(parser, **more):
    options = {name: [action.nargs, getattr(action.type, "__name__", "str"), [*map(str, action.choices or ())]]
               for action in parser._actions for name in action.option_strings}
    print(json.dumps({"options": options, **more}))
"""
VLLM = """
import dataclasses, typing, vllm.envs
from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
fields = {field.name: str(field.type) for field in dataclasses.fields(SpeculativeConfig)}
configs = dict.fromkeys(typing.get_args(SpeculativeMethod), fields)
dump(make_arg_parser(FlexibleArgumentParser()), configs=configs, environment=[*vllm.envs.environment_variables],
     version=vllm.__version__.partition("+")[0])
"""
SGLANG = """
sys.path.insert(0, "sglang")
sys.modules.update({name: MagicMock() for name in ("orjson", "IPython", "IPython.display")})
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
ServerArgs.add_cli_args(parser := argparse.ArgumentParser())
parser._option_string_actions["--speculative-algorithm"].choices = [each.name for each in SpeculativeAlgorithm]
dump(parser, version=importlib.metadata.version("sglang"))
"""
COMMANDS = {
    "vLLM": ["vllm/bin/python", "-c", DUMP + VLLM],
    "SGLang": ["vllm/bin/python", "-c", DUMP + SGLANG],
    "llama.cpp": ["llama_cpp/bin/llama-cpp-server", "-m", "llama_cpp/installed.txt", "--", "--help"],  # any file
    "TGI": ["git", "-C", "tgi", "show", "v3.3.7:docs/source/reference/launcher.md"],
}
OPTION = re.compile(r"(?m)^(?!.*has been removed) {0,6}(--?\w[\w-]*(?:, +-[\w-]+)*)(?: (\S.*?))?(?: {2,}.*)?$")

if __name__ == "__main__":
    name, folder = sys.argv[1:]
    said = subprocess.run(COMMANDS[name], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    options = {}  # name -> [number of values if it has none, their type, choices], in a program's help
    for names, value in OPTION.findall(said):
        choices = value.split(",") if re.fullmatch(r"[a-z][\w-]*(,[\w-]+)+", value) else []
        for option in re.split(", +", names):
            options[option] = [None if value else 0, "int" if value == "N" else "str", choices]
    recorded = json.loads(said.splitlines()[-1]) if "-c" in COMMANDS[name] else {"options": options}
    recorded = {"version": SERVED[name]["version"], "date": time.strftime("%Y-%m-%d"), **recorded}
    recorded["made_by"] = f"python -m tools.servers.parsers {name} FOLDER"
    path = FIXTURES / "server_options" / f"{name}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(recorded, indent=1).encode(), mtime=0))
