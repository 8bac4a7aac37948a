"""What the client of `python -m engine study` costs, and how right it is: many streams from a loopback server in a
process of its own, which answers at a known schedule and writes into each token when it sent it.

python tools/load_client.py [--streams C[,C]] [--tokens-per-s R] [--seconds S] [--json FILE]

For each number of streams: the share of a core that the client used; how late it read tokens, from the server's write
to the client's own time of it (both processes read one clock, CLOCK_MONOTONIC: Linux); and how far the study's metrics
are from the schedule. Exit status 1 where a bar is missed: half a core, 20 ms, 2 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine.measure.environment import commit, versions  # noqa: E402
from engine.metrics import percentile  # noqa: E402
from engine.remote.endpoint import Endpoint, Question, endpoint_of  # noqa: E402
from engine.spec import SamplingParams  # noqa: E402
from engine.under_load import users  # noqa: E402
from engine.under_load.metrics import level_metrics  # noqa: E402

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ABOUT = {"id": "cmpl-0123456789abcdef0123456789abcdef", "object": "text_completion", "created": 1763800000}
SPREAD, FIRST_S = 97, 0.5
MOST_CORE, MOST_LATE_S, MOST_OFF = 0.5, 0.02, 0.02


def part(event: dict | str) -> bytes:
    """A piece of a chunked body, an event."""
    data = b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def first_after(seed: int, interval_s: float) -> float:
    """Seconds from a request to its first token: the seeds spread the streams over an interval."""
    return FIRST_S + interval_s * (seed % SPREAD) / SPREAD


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, intervals: dict[int, float]) -> None:
    """Answers of `max_tokens` tokens, one each interval; `top_k` says which."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            came = time.perf_counter()
            size = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if not size:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                continue
            body = json.loads(await reader.readexactly(size[0]))
            num, interval_s = body["max_tokens"], intervals[body["top_k"]]
            start = came + first_after(body["seed"], interval_s)
            writer.write(HEAD)
            for index in range(num):
                await asyncio.sleep(start + index * interval_s - time.perf_counter())
                choice = {"index": 0, "text": f" {time.perf_counter():.6f}", "logprobs": None, "finish_reason": None}
                writer.write(part({**ABOUT, "model": "m", "choices": [choice]}))
            usage = {"prompt_tokens": 3, "completion_tokens": num}
            writer.write(part({"choices": [], "usage": usage}) + part("[DONE]") + b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def serve(port: Connection, intervals: dict[int, float]) -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda *both: answer(*both, intervals), "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def measured(endpoint: Endpoint, streams: int, interval_s: float, num_tokens: int, late: list[float]) -> dict:
    """One level of so many streams, each asking one question after another."""
    params = SamplingParams(top_k=streams, max_new_tokens=num_tokens)
    questions = [Question(f"question {index}") for index in range(streams)]
    late.clear()
    used = time.process_time()
    asked = asyncio.run(users.ask_all(endpoint, questions, streams, params, 600))
    core = (time.process_time() - used) / asked.wall_s
    firsts = [first_after(seed, interval_s) for seed in range(streams)]
    lasts = [first + (num_tokens - 1) * interval_s for first in firsts]
    truth = {
        "ttft_p95_s": percentile(firsts, 0.95),
        "itl_p95_s": interval_s,
        "tpot_p95_s": percentile([last / num_tokens for last in lasts], 0.95),
        "latency_median_s": percentile(lasts, 0.5),
        "output_tokens_per_s": streams * num_tokens / max(lasts),
    }
    found = level_metrics(asked.answers, len(asked.failures), asked.wall_s)
    return {
        "streams": streams,
        "num_errors": found["num_errors"],
        "tokens_per_s": found["output_tokens_per_s"],
        "share_of_a_core": core,
        "late_ms": {
            name: 1000 * (percentile(late, q) or 0) for name, q in {"p50": 0.5, "p99": 0.99, "most": 1}.items()
        },
        "num_late": sum(each > MOST_LATE_S for each in late),
        "num_tokens": len(late),
        "off_percent": {name: 100 * (found[name] / true - 1) for name, true in truth.items() if true},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="what the client of a study costs, and how right it is")
    parser.add_argument("--streams", default="1,5,25,100,200")
    parser.add_argument("--tokens-per-s", type=float, default=2000.0, help="of all streams together, 40 each at most")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    intervals = {num: max(0.025, num / options.tokens_per_s) for num in map(int, options.streams.split(","))}
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs, intervals), daemon=True)
    process.start()
    late, real = list[float](), users.answer_of

    def noted(reply):
        late.extend(reply.began + chunk.at_s - float(chunk.text) for chunk in reply.chunks)
        return real(reply)

    users.answer_of = noted
    endpoint = endpoint_of("a", f"openai:http://127.0.0.1:{ours.recv()}/v1", "m", {})
    rows = []
    for streams, interval_s in intervals.items():
        rows.append(measured(endpoint, streams, interval_s, int(options.seconds / interval_s), late))
        print(json.dumps(rows[-1], indent=1), flush=True)
    process.terminate()
    if options.json:
        found = {"versions": versions(), "commit": commit(), "rows": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(
        any(
            row["share_of_a_core"] > MOST_CORE
            or row["num_late"]
            or row["num_errors"]
            or max(map(abs, row["off_percent"].values())) > 100 * MOST_OFF
            for row in rows
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
