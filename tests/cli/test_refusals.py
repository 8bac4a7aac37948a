"""What no command can do is refused in one line with the value and the choices, before torch or any file is touched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.main import COMMANDS
from engine.studies.prompts.prompts import digest, read_prompts
from tests.helpers import ROOT
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import text_of

HYBRID = f"hybrid:ngram+{text_of('eagle3')}"
PROMPTS, SERVER = '{"prompt": "a"}\n', "openai:http://secret/v1"
K, FRACTION = "must be auto, tree:N or an integer from 0 to 63, not ", "must be a number above 0 and at most 1, not "

REFUSED: dict[str, list[tuple[str | list[str], str]]] = {
    "": [("nonsense", f"unknown command 'nonsense'; choose one of: {', '.join(sorted(COMMANDS))}")],
    "race": [
        ("", "exactly one prompt, by --prompt TEXT or --prompt-file FILE, not none"),
        ("--prompt a --prompt b", "exactly one prompt"),
        ("--prompt a --prompt-file b", "exactly one prompt"),
        ("--prompt=", "the prompt is empty"),
        ("--prompt-file missing.txt", "'missing.txt': No such file"),
        ("--prompt-file engine", "'engine': Is a directory"),
        ("--prompt-file /dev/zero", "'/dev/zero' is larger than 16 MB"),
        *(
            (f"--prompt-file {name}", "is not UTF-8 text" if name != "nul" else "NUL")
            for name in ("bytes", "cut", "nul")
        ),
        (["--prompt", "a\udcff"], "lone surrogate"),
    ],
    "race --prompt a": [
        *((f"--k {value}", f"--k: {K}'{value}'") for value in ("3.5", "-1", "64", "1_0", "٣")),
        (["--k", "1\n2\x1b[31m"], "not '1\\n2\\x1b[31m'"),
        ("--k --json", "--k: expected one argument"),
        ("--k 0", "needs k of 1 to 63 or auto, not 0"),
        ("--width 65", "--width: must be auto or an integer from 1 to 64, not '65'"),
        ("--width 4", "width 4 cannot hold k=7 drafts"),
        *((f"--temperature {x}", f"must be a number from 0 to 100, not '{x}'") for x in ("-0.1", "nan", "inf", "hot")),
        *((f"--top-p {value}", f"--top-p: {FRACTION}'{value}'") for value in ("0", "nan", "0_1")),
        ("--top-k -1", "--top-k: must be an integer from 0"),
        *((f"--max-new-tokens {x}", f"must be an integer from 1 to 100000, not '{x}'") for x in ("0", "100001")),
        ("--target=", "--target: must not be empty"),
        ("--drafter nonsense", "unknown drafter 'nonsense'; choose one of: "),
        ("--dtype int4", "--dtype: must be one of auto, bfloat16, float16, float32, not 'int4'"),
        ("--device tpu", "--device: must be one of auto, cpu, cuda, cuda:N, mps, not 'tpu'"),
        *((f"--threads {value}", f"must be an integer from 1 to 64, not '{value}'") for value in ("0", "65")),
        ("--stop=", "--stop: must not be empty"),
        ("--save missing/race.json", "cannot save to 'missing/race.json': No such file"),
        ("--save engine", "cannot save to 'engine': it is a folder"),
        *((f"{words} 3", f"unrecognized arguments: {words}") for words in ("--fast", "--ka", "--temp")),
        ("--tables --rule rejection", "rule 'rejection' of lane 'speculative' has no table"),
        ("--tables --drafter none", "drafter 'none' has no table"),
        *((f"--lane {text}", "--lane: must be NAME=DRAFTER") for text in ("ngram", "=ngram", "a=", "a=@7")),
        *((f"--lane a=ngram@{value}", f"{K}'{value}'") for value in ("", "64")),
        ("--lane a=draft_model:owner/name@main", "must be auto, tree:N or an integer from 0 to 63, not 'main'"),
        *((f"--lane {name}=ngram", "NAME must not be plain or baseline") for name in ("plain", "baseline")),
        (f"--lane {'n' * 41}=ngram", "at most 40 characters"),
        (["--lane", "a\x1b[2J=ngram"], "all visible"),
        ("--lane a=ngram --lane a=none", "lanes with different names, not 4: plain, baseline, a, a"),
        ("--lane a=openai:secret:8000/v1@7 --model m", "lane 'a' needs openai:http://HOST:PORT/v1"),
        (f"--lane a={SERVER[:-3]}:x/v1 --model m", "needs openai:http://HOST:PORT/v1"),
        ("--lane a=openai:ftp://secret/v1 --model m", "needs openai:http://HOST:PORT/v1"),
        (f"--lane ={SERVER} --model m", "must be NAME=DRAFTER"),
        (f"--lane a={SERVER}?key=1 --model m", "without ? and #"),
        (f"--lane baseline={SERVER} --lane b=ngram --model m", "servers do not mix with lanes here"),
        (f"--lane a={SERVER} --k 3 --model m", "--k is for a model on this machine"),
        (f"--lane a={SERVER} --tables --model m", "--tables is for a model on this machine"),
        (f"--lane a={SERVER} --lane a={SERVER} --model m", "different names"),
        ("--model x", "--model is for servers"),
        ("--no-thinking", "--no-thinking is for chat templates: give it with --chat"),
        (f"--lane a={SERVER} --no-thinking --model m", "--no-thinking is for a model on this machine"),
        ("--lane b=ngram --same-device", "--same-device is for servers"),
        *((f"{more} --lane a=ngram", "give it without --drafter and --k") for more in ("--drafter ngram", "--k 7")),
        ([f"--lane={i}=ngram" for i in range(15)], "a race needs from 1 to 16 lanes with different names, not 17"),
    ],
    "doctor": [
        ("--model m", "--model is for servers: --lane NAME=openai:URL"),
        (f"--lane a={SERVER}", "lane 'a' is a server: give --model NAME"),
        (f"--lane a={SERVER} --model m --drafter ngram", "--drafter is for a model on this machine"),
        (f"--lane a={SERVER} --model m --files-only", "--files-only is for a model on this machine"),
        ("--lane a=ngram --model m", "every --lane must be NAME=openai:http://HOST:PORT/v1"),
        ([f"--lane={i}={SERVER}" for i in "abc"], "at most 2 lanes with different names, not a, b, c"),
        ("--lane a=openai:secret/v1 --model m", "lane 'a' needs openai:http://HOST:PORT/v1"),
    ],
    "study-prompts": [
        ("", "the following arguments are required: --prompts"),
        ("--prompts missing.jsonl", "'missing.jsonl': cannot read it: No such file"),
        ("--prompts FILE --limit 201", "--limit: must be an integer from 1 to 200, not '201'"),
        ("--prompts FILE --drafter ngram,none", "drafter 'none' has no table"),
        ("--prompts FILE --save /nowhere/x", "cannot save to '/nowhere/x'"),
        ("--prompts FILE --save NOTES", "it is not JSON"),
        ("--prompts FILE --save /dev/null", "cannot save to '/dev/null': a study goes on in a file"),
        ("--prompts assets/heads/eagle3/config.json", "line 1: it has none of prompt, "),
        ("--prompts FILE --save STUDY --seed 4", "its seed is 0, not 4"),
        (f"--prompts FILE --save STUDY --drafter {HYBRID}", "its drafters is ngram"),
        ("--prompts OTHER --save STUDY --drafter ngram", "its prompts is"),
        ("--prompts FILE --save STUDY --drafter ngram --temperature 0.5", "its temperature is 0.0, not 0.5"),
        ("--prompts FILE --generate --save STUDY --drafter ngram", "its generate is None, not True"),
        (f"--prompts FILE --generate --lane plain={SERVER} --model m", "--generate is for a model on this"),
        (f"--prompts FILE --lane plain={SERVER} --lane b={SERVER} --model m --model b=o", "one --model, not m, o"),
        ("--prompts FILE --chat", "--chat is for servers"),
        (f"--prompts FILE --lane plain={SERVER} --model m --dtype float32", "--dtype is for a model on this"),
        (f"--prompts FILE --lane a={SERVER} --model m", "different names, one of them plain or baseline, not a"),
        (f"--prompts FILE --lane plain={SERVER}", "lane 'plain' is a server: give --model NAME"),
        (f"--prompts FILE --lane plain={SERVER} --model m", "no lane of these servers drafts"),
    ],
    "verify": [
        ("", "the following arguments are required: FILE"),
        ("missing.json --json", "cannot read the recording 'missing.json'"),
        ("engine/cli/main.py", "not JSON"),
    ],
    "replay": [("missing.json", "cannot read the recording 'missing.json'")],
    "export": [
        ("x.json", "nothing to write: give --html OUT.html, --csv OUT.csv, or both"),
        ("missing.json --html x.html", "cannot read the recording 'missing.json'"),
        ("engine/cli/main.py --csv x.csv", "not JSON"),
        ("x.json --html engine", "cannot save to 'engine': it is a folder"),
        ("x.json --csv=", "--csv: must not be empty"),
    ],
}
CASES = [
    ([*command.split(), *(arguments.split() if isinstance(arguments, str) else arguments)], words)
    for command, rows in REFUSED.items()
    for arguments, words in rows
]
ALL = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from engine.cli.main import main
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(json.loads(line))
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which importing torch ends the process with status 77."""
    folder = tmp_path_factory.mktemp("no_torch")
    (folder / "torch.py").write_text("import os; os._exit(77)")
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def answers(no_torch: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str, str]]:
    """(status, stdout, stderr) of every case, from one process that has no torch."""
    folder = tmp_path_factory.mktemp("files")
    head = {"format": "photofinish-study", "schema": 1, "target": str(TRAINED), "drafters": ["ngram"]}
    head |= {"temperature": 0.0, "top_p": 1.0, "seed": 0, "max_new_tokens": 128, "dtype": "float32", "device": "auto"}
    head |= {"prompts": digest(read_prompts(PROMPTS, "FILE").prompts), "about": {}}
    contents = {"NOTES": b"buy milk", "bytes": b"\xff", "cut": b"ab\xc3", "nul": b"\x00text"}
    contents |= {"FILE": PROMPTS.encode(), "OTHER": PROMPTS.replace("a", "b").encode()}
    contents |= {"STUDY": json.dumps(head).encode() + b"\n"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    lines = []
    for arguments, _ in CASES:
        argv = [str(folder / argument) if argument in contents else argument for argument in arguments]
        if "STUDY" in arguments:
            argv += ["--target", str(TRAINED), "--dtype", "float32"]
        lines.append(json.dumps(argv))
    command, given = [sys.executable, "-c", ALL], "\n".join(lines)
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, env=no_torch)
    assert (folder / "NOTES").read_bytes() == b"buy milk"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("index", range(len(CASES)), ids=[" ".join(arguments)[:60] for arguments, _ in CASES])
def test_unusable_arguments_give_status_2_and_one_line(index, answers):
    """A typo would cost seconds of loading; a script would read a traceback or half a result; a log, a server's URL."""
    assert index < len(answers), "this case, or one before it, imported torch"
    status, out, err = answers[index]
    assert (status, out) == (2, ""), err
    assert err.startswith("error: ") and err.count("\n") == 1 and CASES[index][1] in err, err
    assert "secret" not in err


def test_the_trap_for_torch_works(no_torch, tmp_path: Path):
    """The test above could not notice torch: with good arguments a race does import it."""
    race = ["race", "--prompt", "a", "--target", str(tmp_path)]
    assert subprocess.run([sys.executable, "-m", "engine", *race], cwd=ROOT, env=no_torch).returncode == 77
