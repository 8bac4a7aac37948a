"""The command `study` against a loopback server of known schedule, and its data."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.cli.main import main
from engine.errors import UsageError
from engine.under_load.data import read_questions

FIRST_S, INTERVAL_S, TOKENS, KEY = 0.8, 0.1, 5, "sk-secret-of-the-test"


class Server:
    """Answers at a fixed schedule: the first token after FIRST_S, the others INTERVAL_S apart, all `pace` times as
    slow. bad: what it refuses."""

    def __init__(self, pace: float = 0.01) -> None:
        self.pace = pace
        self.asked: list[dict] = []
        self.bad = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while head := await reader.readuntil(b"\r\n\r\n"):
            at = loop.time()
            size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            body = json.loads(await reader.readexactly(size))
            self.asked.append(body)
            if self.bad and self.bad in body["prompt"]:
                writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
                continue
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for index in range(TOKENS):
                await asyncio.sleep(at + self.pace * (FIRST_S + index * INTERVAL_S) - loop.time())
                writer.write(b'data: {"choices": [{"text": "a"}]}\n\n')
            usage = {"prompt_tokens": 5, "completion_tokens": TOKENS}
            writer.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())
            writer.close()
            return


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Its URL."""
    loop, port = asyncio.new_event_loop(), []
    ready = threading.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await server.answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def begin() -> None:
        listening = await asyncio.start_server(handle, "127.0.0.1", 0)
        port.append(listening.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.create_task(begin())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(5)
    yield f"http://127.0.0.1:{port[0]}/v1"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


def study(tmp_path, urls: dict[str, str], num: int, *more: str) -> int:
    data = tmp_path / "prompts.txt"
    data.write_text("\n".join(f"question {index}." for index in range(num)))
    lanes = [part for name, url in urls.items() for part in ("--lane", f"{name}=openai:{url}")]
    return main(["study", *lanes, "--model", "m", "--data", str(data), "--json", "--timeout", "5", *more])


def test_a_known_schedule_is_measured(tmp_path, capfd) -> None:
    """Another definition than the one that is told: each of these is off by more than a busy machine makes them."""
    latency = FIRST_S + (TOKENS - 1) * INTERVAL_S
    with serving(Server(pace=1)) as url:
        assert study(tmp_path, {"a": url}, 6, "--concurrency", "1,2", "--requests", "2") == 0
    levels = json.loads(capfd.readouterr().out)["levels"]
    assert [level["num_output_tokens"] for level in levels] == [2 * TOKENS] * 2
    truth = {
        "ttft_p95_s": FIRST_S,
        "itl_p95_s": INTERVAL_S,
        "tpot_p95_s": latency / TOKENS,
        "latency_median_s": latency,
    }
    for level, rounds in zip(levels, (2, 1), strict=True):
        rate = 2 * TOKENS / (rounds * latency)
        for name, true in {**truth, "output_tokens_per_s": rate, "total_tokens_per_s": 2 * rate}.items():
            assert level[name] == pytest.approx(true, rel=0.15), name


def test_lanes_get_the_same_prompts_once_and_no_secret_is_printed(tmp_path, capfd, monkeypatch) -> None:
    """Lanes would get other prompts, a cache would answer for a second use, or a key or URL be printed."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    first, second = Server(), Server()
    with serving(first) as one, serving(second) as two:
        assert study(tmp_path, {"baseline": one, "plain": two}, 14, "--concurrency", "1,4", "--requests", "6") == 0
    out, err = capfd.readouterr()
    assert KEY not in out + err and "127.0.0.1" not in out + err
    prompts = [[(body["prompt"], body["seed"]) for body in server.asked] for server in (first, second)]
    assert prompts[0][:8] == prompts[1][:8] and sorted(prompts[0]) == sorted(prompts[1])
    assert len({prompt for prompt, _ in prompts[0]}) == len(prompts[0]) == 14
    assert prompts[0][:3] == [("question 12.", 0), ("question 13.", 1), ("question 0.", 0)]


def test_a_failed_request_is_counted_and_not_asked_again(tmp_path, capfd) -> None:
    """Errors would be dropped from the level, or hidden by asking again."""
    server = Server()
    server.bad = "question 1."
    with serving(server) as url:
        assert study(tmp_path, {"a": url}, 6, "--concurrency", "4", "--requests", "4") == 0
    level = json.loads(capfd.readouterr().out)["levels"][0]
    assert (level["num_requests"], level["num_errors"], level["num_output_tokens"]) == (4, 1, 3 * TOKENS)
    assert sum(body["prompt"] == "question 1." for body in server.asked) == 1


def test_a_server_that_is_not_there_is_said_at_once(tmp_path, capfd) -> None:
    """A study of a dead server would hang, or print its URL."""
    assert study(tmp_path, {"a": "http://127.0.0.1:9/v1"}, 6, "--concurrency", "1", "--requests", "4") == 1
    out, err = capfd.readouterr()
    assert "lane a cannot be reached" in err and "127.0.0.1" not in out + err


def test_too_few_prompts_are_refused_before_any_request(tmp_path, capfd) -> None:
    """Prompts would be asked twice, and a cache would answer."""
    server = Server()
    with serving(server) as url:
        assert study(tmp_path, {"a": url}, 9, "--concurrency", "1,2", "--requests", "4") == 2
    assert "need 10 different prompts; there are 9" in capfd.readouterr().err and not server.asked


def test_every_format_gives_its_prompts() -> None:
    """A format would be read as another, or a prompt lose its roles."""
    sharegpt = [{"conversations": [{"from": "gpt", "value": "hi"}, {"from": "human", "value": "why"}]}] * 2
    asked = [question.text for question in read_questions(json.dumps(sharegpt), "s.json", False)]
    assert asked == ["why"]
    messages = '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}'
    assert read_questions(messages, "m.jsonl", False)[0].messages == (("system", "s"), ("user", "u"))
    assert read_questions("one\ntwo", "t.txt", True)[1].messages == (("user", "two"),)
    with pytest.raises(UsageError, match="conversation 1"):
        read_questions('[{"turns": []}]', "s.json", False)
