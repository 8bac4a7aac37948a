"""Races of real vLLM servers on this machine's CPU, checked against what the servers themselves say.

python tools/real_servers.py --vllm PATH [--races N] [--json FILE] [--save FOLDER]

PATH is the command `vllm` of an environment of its own; vLLM is no dependency of this project. Three servers of the
trained fixture (tests/fixtures/trained): without drafts, with n-gram, with its EAGLE-3 head. Each race asks the first
and one of the others the same question, one after the other. Checked in each: the steps of the recording have exactly
the accepted and drafted counts of the server's own list, the tokens are as many as its usage says, and the counters of
the server grew by the sums of its lists.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine.events import steps  # noqa: E402
from engine.measure import environment  # noqa: E402
from engine.metrics import lane_metrics  # noqa: E402
from engine.recordings import recording as recordings  # noqa: E402
from engine.remote.client import Patience  # noqa: E402
from engine.remote.endpoint import Question, endpoint_of  # noqa: E402
from engine.remote.race import RemoteRace  # noqa: E402
from engine.spec import SamplingParams  # noqa: E402

TARGET, HEAD = ROOT / "tests/fixtures/trained/target", ROOT / "tests/fixtures/trained/eagle3"
DRAFTING = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3},
    "eagle3": {"method": "eagle3", "model": str(HEAD), "num_speculative_tokens": 3},
}
READY_S = 300
COUNTERS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


@contextmanager
def served(vllm: str, drafting: dict | None, log: Path) -> Iterator[int]:
    """A vLLM of the fixture's target; its port, once it is up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    more = ["--speculative-config", json.dumps(drafting), "--per-request-spec-decode-metrics", "detailed"]
    command = [vllm, "serve", str(TARGET), "--served-model-name", "fixture", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "4", "--enforce-eager"]
    calm = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PATH": f"{Path(vllm).parent}:{os.environ['PATH']}"}
    with log.open("w") as out:
        process = subprocess.Popen(
            command + (more if drafting else []), env={**os.environ, **calm, **quiet}, stdout=out, stderr=out
        )
    try:
        ends = time.monotonic() + READY_S
        while time.monotonic() < ends and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                    break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        else:
            sys.exit(f"vLLM did not start; see {log}")
        yield port
    finally:
        process.terminate()
        process.wait(60)


def counters(port: int) -> list[float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return [
        sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:spec_decode_{name}_total"))
        for name in COUNTERS
    ]


def questions(num: int) -> Iterator[tuple[Question, SamplingParams]]:
    """Prompts of the suite's kind, half of them sampled."""
    rng = random.Random(21)
    words = ["def", "return", "for", "in", "x", "=", "1", "2", "three", "(", ")", "the", "import", "self"]
    for i in range(num):
        text = " ".join(rng.choices(words, k=rng.randint(4, 40))) if i % 3 else "def add(a, b):\n    return a + b\n" * 2
        temperature = 0.0 if i % 2 else 0.8
        yield Question(text), SamplingParams(temperature, seed=i, max_new_tokens=rng.randint(8, 96))


def check(drafter: str, ports: dict[str, int], question: Question, params: SamplingParams) -> tuple[dict, dict]:
    """A race, and what is wrong with it."""
    lanes = {"baseline": ports["none"], "speculative": ports[drafter]}
    ends = [endpoint_of(name, f"openai:http://127.0.0.1:{port}/v1", "fixture", {}) for name, port in lanes.items()]
    before = counters(ports[drafter])
    race = RemoteRace(ends, question, params, Patience(), same_device=True)
    events = list(race.events())
    recording = recordings.build(race.header(), events, race.result())
    recordings.loads(json.dumps(recording).encode())
    grown = [after - start for after, start in zip(counters(ports[drafter]), before, strict=True)]
    told, done = race.lanes["speculative"].reply, recordings.events_of(recording)
    drafted, own = told.drafted, [step for step in steps(done, "speculative") if step.num_drafted]
    counts = [(step.num_accepted, step.num_drafted) for step in own]
    listed = list(zip(drafted.accepted, drafted.drafted, strict=True)) if drafted else []
    cut = (
        bool(listed) and counts[:-1] == listed[:-1] and counts[-1][1] == listed[-1][1] and counts[-1][0] < listed[-1][0]
    )
    wrong = {
        "counts": counts != listed and not cut,
        "tokens": any(
            sum(len(step.token_ids) for step in steps(done, name)) != lane.reply.num_tokens
            for name, lane in race.lanes.items()
        ),
        "counters": bool(listed) and grown[1:] != [sum(drafted.drafted), sum(drafted.accepted)],
    }
    return recording, {
        "drafter": drafter,
        "tokens": told.num_tokens,
        "listed_steps": len(listed),
        "last_step_cut": cut,
        "verdict": recording["verdicts"]["speculative"]["kind"],
        "acceptance_length": lane_metrics(done, "speculative").mean_acceptance_length,
        "wrong": [name for name, is_wrong in wrong.items() if is_wrong],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="the command vllm of another environment")
    parser.add_argument("--races", type=int, default=20, help="of each drafter")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--save", type=Path, help="a folder for one recording of each drafter")
    parser.add_argument("--logs", type=Path, default=Path("/tmp"))
    options = parser.parse_args()
    rows = []
    with ExitStack() as stack:
        kinds = {"none": None, **DRAFTING}
        ports = {
            name: stack.enter_context(served(options.vllm, drafting, options.logs / f"vllm_{name}.log"))
            for name, drafting in kinds.items()
        }
        for drafter in DRAFTING:
            saved = options.save is None
            for question, params in questions(options.races):
                recording, row = check(drafter, ports, question, params)
                rows.append(row)
                if not saved and row["listed_steps"]:
                    recordings.write(options.save / f"race_vllm_{drafter}.json", recording)
                    saved = True
    wrong = [row for row in rows if row["wrong"]]
    found = {**environment.versions(), "races": len(rows), "wrong": len(wrong), "rows": rows}
    print(f"{len(rows)} races, {len(wrong)} with counts that differ from the server's: {wrong[:3]}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
