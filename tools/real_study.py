"""A small study of real vLLM servers on this machine's CPU, and whether a head drafts there what it drafts here.

python tools/real_study.py --vllm PATH [--requests N] [--prompts N] [--json FILE]

PATH and the servers are those of tools/real_servers.py. The study: each server with 1, 2 and 4 users, against the one
without drafts. Checked: no request fails, every answer has the tokens that were asked for, and the acceptance length of
a level, which the answers tell, is that of the server's counters. The drafts: greedy texts of vLLM with EAGLE-3 are
written here too, with the same head and k. A step accepts as many tokens there as here wherever both draft the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine import RaceSpec, TorchRace, encode_prompt, load, standard_lanes  # noqa: E402
from engine.events import steps  # noqa: E402
from engine.measure.environment import commit, versions  # noqa: E402
from engine.remote.client import ask, new_client  # noqa: E402
from engine.remote.endpoint import Endpoint, endpoint_of  # noqa: E402
from engine.spec import SPECULATIVE, SamplingParams  # noqa: E402
from engine.under_load.counters import acceptance_length, read_counters  # noqa: E402
from engine.under_load.data import WARM_UP, read_data  # noqa: E402
from engine.under_load.metrics import report  # noqa: E402
from engine.under_load.study import Listener, Plan, row_of, run  # noqa: E402
from engine.under_load.users import ask_all  # noqa: E402
from tools.real_servers import DRAFTING, HEAD, TARGET, questions, served  # noqa: E402

USERS, NUM_TOKENS = (1, 2, 4), 48
K = DRAFTING["eagle3"]["num_speculative_tokens"]


def studied(endpoints: list[Endpoint], num_requests: int) -> dict:
    """The report of a study, and what is wrong with it."""
    num = len(USERS) * num_requests + WARM_UP
    prompts, num_tokens = read_data(f"synthetic:30,{NUM_TOKENS}", False, num, 1)
    params = SamplingParams(max_new_tokens=num_tokens)
    plan = Plan(tuple(endpoints), tuple(prompts), USERS, num_requests, params)
    rows, wrong = [], []

    def nothing(*_) -> None:
        pass

    asyncio.run(run(plan, (), (), Listener(nothing, nothing, nothing, rows.append)))
    for row in rows:
        if row["num_errors"] or row["num_output_tokens"] != num_requests * NUM_TOKENS:
            wrong.append(
                f"{row['lane']}, {row['concurrency']} users: {row['num_output_tokens']} tokens, {row['fault']}"
            )
    return {**report(rows, [each.lane for each in endpoints], 1), "wrong": wrong}


async def by_both(endpoint: Endpoint, num_requests: int) -> tuple[float | None, float | None]:
    """The acceptance length of a level, by its answers and by the server's counters."""
    prompts, num_tokens = read_data(f"synthetic:30,{NUM_TOKENS}", False, num_requests, 2)
    before = await read_counters(endpoint)
    asked = await ask_all(endpoint, prompts, 4, SamplingParams(max_new_tokens=num_tokens), 600)
    own = row_of((endpoint.lane, 4), asked, None, None)["mean_acceptance_length"]
    return own, acceptance_length(before, await read_counters(endpoint))


async def drafted(endpoint: Endpoint, num_prompts: int) -> dict:
    """Of the steps of greedy texts that stand at the same place on the server and here, and draft as many tokens: how
    many accept the same number of them."""
    loaded, num_alike, num_steps, other_texts = load(str(TARGET), "float32", "cpu"), 0, 0, 0
    async with new_client() as client:
        for question, params in questions(num_prompts):
            greedy = SamplingParams(max_new_tokens=params.max_new_tokens)
            reply = await ask(client, endpoint, question, greedy)
            prompt = encode_prompt(loaded.tokenizer, question.text, chat=False)
            assert prompt.token_ids == reply.prompt_ids, "the server reads the prompt as other tokens"
            race = TorchRace(loaded, RaceSpec(standard_lanes(f"eagle3:{HEAD}", K), greedy), prompt)
            here = list(steps(list(race.events()), SPECULATIVE))
            if tuple(token for step in here for token in step.token_ids) != reply.token_ids:
                other_texts += 1
                continue
            ours = {step.position: step.num_accepted for step in here if len(step.drafted) == K}
            # vLLM drafts in every step from the second token on, so its lists say where each step stands
            starts = accumulate((num + 1 for num in reply.drafted.accepted), initial=1)
            theirs = dict(zip(starts, reply.drafted.accepted, strict=False))
            both = ours.keys() & theirs.keys()
            num_steps += len(both)
            num_alike += sum(ours[position] == theirs[position] for position in both)
    return {"prompts": num_prompts, "texts_that_differ": other_texts, "steps": num_steps, "steps_alike": num_alike}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="the command vllm of another environment")
    parser.add_argument("--requests", type=int, default=12, help="of a level")
    parser.add_argument("--prompts", type=int, default=40, help="whose drafts are compared")
    parser.add_argument("--logs", type=Path, default=Path("/tmp"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ExitStack() as stack:
        ends = {}
        for name, how in {"none": None, **DRAFTING}.items():
            port = stack.enter_context(served(options.vllm, how, options.logs / f"vllm_{name}.log"))
            ends[name] = endpoint_of(name, f"openai:http://127.0.0.1:{port}/v1", "fixture", {})
        found = {
            "versions": versions(),
            "commit": commit(),
            "drafts": asyncio.run(drafted(ends["eagle3"], options.prompts)),
            "acceptance_by_answers_and_counters": {
                name: asyncio.run(by_both(ends[name], options.requests)) for name in DRAFTING
            },
            "studies": {name: studied([ends["none"], ends[name]], options.requests) for name in DRAFTING},
        }
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    wrong = [each for study in found["studies"].values() for each in study["wrong"]]
    apart = [
        name for name, (a, b) in found["acceptance_by_answers_and_counters"].items() if a is None or abs(a - b) > 1e-9
    ]
    sys.exit(bool(wrong or apart or found["drafts"]["steps"] != found["drafts"]["steps_alike"]))


if __name__ == "__main__":
    main()
