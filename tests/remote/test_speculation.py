"""Does a server speculate, and how many tokens does a step write? By its metrics and answers: on, off, or not known."""

import asyncio
from errno import ECONNREFUSED, EMFILE
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import accumulate
from threading import Thread

import certifi
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.remote.client import Patience, RemoteError, named_errors, trust
from engine.remote.dialects import Drafted, dialect_of, drafted_in
from engine.remote.endpoint import Endpoint, check_url
from engine.remote.look import look
from engine.remote.metrics import Counters, counters_in, per_step
from engine.remote.reply import Chunk, Reply
from engine.remote.speculation import speculation_of
from tests.helpers.loopback import lists_models, refusal, servers, writes

SPEC = "spec_decode_num_{}_total"
STAMPS = "", " 1795868132000", ' # {trace_id="}"} 1 1795868132.5'  # behind a value; the last is OpenMetrics'


def page(prefix: str, labels: str = "", stamp: str = "", **values: float) -> str:
    """Prometheus' text for counters of drafts. values: by `drafts`, `draft_tokens`, `accepted_tokens` ..."""
    lines = [f"{prefix}{SPEC.format(name)}{labels} {value}{stamp}" for name, value in values.items()]
    return "\n".join([f"{prefix}generation_tokens_total{labels} 7{stamp}", *lines, ""])


def replied(*sizes: int) -> Reply:
    """An answer in pieces of so many tokens."""
    chunks = [Chunk(0.1 * i, "", "x", (), num) for i, num in enumerate(accumulate(sizes))]
    return Reply(chunks, 3, sum(sizes), "length")


OLD = {"draft_tokens": 4.0, "accepted_tokens": 2.0}
# before, after, pieces -> on?, a word of the evidence. From vllm#7301, #15151, llama.cpp#24851, #22879, and the text
# format itself.
CASES = {
    "vLLM of today": (page("vllm:", drafts=2, **OLD), page("vllm:", drafts=4, draft_tokens=12, accepted_tokens=6),
                      (1, 3, 3), True, "4 accepted ones of 8"),
    "vLLM of 2024": (page("vllm:", emitted_tokens=3, **OLD),
                     page("vllm:", emitted_tokens=9, draft_tokens=12, accepted_tokens=6), (1, 3, 3), True, "of 8"),
    "with times": (page("vllm:", stamp=" 1795868132000", drafts=2), page("vllm:", stamp=" 1795868139000", drafts=4),
                   (1, 3, 3), True, "2 drafts"),
    "vLLM without speculation": (page("vllm:"), page("vllm:"), (1, 1, 1), False, "no drafts at all"),
    "vLLM that sends several at a time": (page("vllm:"), page("vllm:"), (3, 3, 3), True, "3.00 tokens"),
    "another replica's counters": (page("vllm:", drafts=2, **OLD),) * 2 + ((1, 3, 3), True, "another replica's?"),
    "llama.cpp without speculation": (page("llamacpp:", drafts=0, accepted_tokens=0),) * 2
    + ((1, 1, 1), False, "off, or nothing to draft"),
    "SGLang": ("sglang:spec_verify_calls_total 4\n", "sglang:spec_verify_calls_total 9\n", (1, 2, 2), True, "5 drafts"),
    "LMDeploy": (page("lmdeploy:", drafts=2, **OLD), page("lmdeploy:", drafts=4, draft_tokens=12, accepted_tokens=6),
                 (1, 3, 3), True, "4 accepted ones of 8"),
    "TensorRT-LLM": (page("trtllm_", **OLD), page("trtllm_", draft_tokens=9, accepted_tokens=6), (1, 3, 3), True, "5"),
    "a router of vLLMs": ("vllm:num_requests_running 0\n",) * 2 + ((1, 1, 1), None, "reports no drafts"),
    "no metrics": ("", "", (1, 1, 1), None, "reports no drafts"),
    "others' drafts": (page("vllm:", drafts=2, accepted_tokens=0), page("vllm:", drafts=4, accepted_tokens=9),
                       (1, 1, 1), True, "other requests"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_on_off_and_not_known_have_their_evidence(case: str) -> None:
    """A server that counts its drafts otherwise would be "off", one without any "on", or others' drafts be its own."""
    before, after, sizes, is_on, words = CASES[case]
    speculation = speculation_of([replied(*sizes)], counters_in(before, "m"), counters_in(after, "m"))
    assert speculation.is_on is is_on and words in speculation.says, speculation


@given(st.lists(st.tuples(st.sampled_from("mno"), st.integers(0, 9)), min_size=1, max_size=6), st.sampled_from(STAMPS))
def test_another_models_counters_are_not_counted(drafts: list[tuple[str, int]], stamp: str) -> None:
    """One /metrics of several models (llama.cpp's router): a neighbour's drafts would be this one's. Or every counter
    would be read as the value of the OpenMetrics exemplar that follows it."""
    text = "".join(
        page("vllm:", f'{{engine="{i}",model_name="{name}"}}', stamp, drafts=num)
        for i, (name, num) in enumerate(drafts)
    )
    names = {name for name, _ in drafts}
    own = [num for name, num in drafts if name == "m" or len(names) == 1]
    assert counters_in(text, "m").values.get("spec_decode_num_drafts") == (sum(own) if own else None)


def counted(drafts: float, accepted: float, prefix: str = "vllm:") -> Counters:
    return counters_in(page(prefix, drafts=drafts, accepted_tokens=accepted), "m")


@given(st.integers(1, 50), st.floats(0, 6), st.floats(0.5, 3))
def test_a_step_writes_no_more_than_a_piece_carries(num_steps: int, kept: float, size: float) -> None:
    """Another user's acceptance would be shown as this level's."""
    num_tokens, num_chunks = round(num_steps * (1 + kept)), max(1, round(num_steps / size))
    length, doubt = per_step(counted(5, 7), counted(5 + num_steps, 7 + kept * num_steps), 1, num_tokens, num_chunks)
    assert (length is None) == bool(doubt)
    assert length is None or length == pytest.approx(1 + kept)
    assert length is None or num_chunks == 1 or length <= 1.1 * (num_tokens - 1) / (num_chunks - 1) + 1e-9
    free = per_step(counted(5, 7, "llamacpp:"), counted(6, 9, "llamacpp:"), 1, 9, 9)
    assert free == (3.0, ""), "llama.cpp sends one token a piece, whatever a step writes"


def test_reports_of_an_answer_are_read_in_every_servers_form() -> None:
    """The drafts of a server would be unknown although it reports them, or a report that cannot be right be shown."""
    summary = {"num_accepted_draft_tokens": 3, "num_draft_tokens": 9, "num_spec_steps": 3}
    sglang = {"spec_num_correct_drafts": 2, "spec_num_proposed_drafts": 6, "spec_verify_ct": 3}
    assert drafted_in({"metrics": {"speculative_decoding": summary}}) == Drafted(3, 9, 3)
    assert drafted_in({"sglext": {"spec_tokens_details": sglang}}) == Drafted(2, 6, 3)
    assert drafted_in({"timings": {"draft_n": 9, "draft_n_accepted": 4, "draft_rounds": 3}}) == Drafted(4, 9, 3)
    smg = {"accepted_prediction_tokens": 30, "rejected_prediction_tokens": 12}
    for details, counts in ((smg, Drafted(30, 42)), (dict.fromkeys(smg, 0), None)):  # OpenAI's, of any answer
        assert drafted_in({"usage": {"completion_tokens_details": details}}) == counts
    per_iteration = drafted_in({"choices": [{"avg_decoded_tokens_per_iter": 2.5}]})
    assert per_iteration and per_iteration.of(40) == Drafted(24, None, 16)
    for wrong in (sglang | {"spec_num_correct_drafts": 7}, sglang | {"spec_verify_ct": "x"}, {}, None, []):
        counts = drafted_in({"sglext": {"spec_tokens_details": wrong}})
        assert counts is None or counts.num_steps is None


def test_servers_are_called_what_they_are() -> None:
    """A proxy that lists every model as OpenAI's (litellm#32903) would be called OpenAI in a saved study."""
    assert dialect_of([{"owned_by": "openai", "created": 1677610602}], {}).name == "LiteLLM"
    assert dialect_of([{"owned_by": "openai"}], {"x-litellm-version": "1"}).name == "LiteLLM"
    assert dialect_of([{"owned_by": "openai"}], {}).name == dialect_of([{"owned_by": 7}, 3], {}).name == ""
    assert dialect_of([{"owned_by": "tensorrt_llm"}], {}).name == "TensorRT-LLM"


@pytest.mark.parametrize("path", ["/v1/completions", "/completions"])
def test_an_address_without_its_path_is_enough(path: str) -> None:
    """The newcomer's first try would end with words about a stream that broke off."""

    with servers(writes(path=path)) as (server,):
        server.pages = lists_models("m") if path.startswith("/v1") else {"/v1/models": refusal(403, b"")}
        endpoint = Endpoint("a", "m", server.url.removesuffix("/v1"))
        seen = asyncio.run(look(endpoint))
        assert check_url("a", f"{server.url}/chat/completions/") == check_url("a", f"{server.url}/models") == server.url
        assert any(head.startswith("GET /prometheus/metrics") for head in server.headers), "TensorRT-LLM's"
    assert seen.endpoint and endpoint.memory.base.endswith("/v1") == path.startswith("/v1")


def test_a_server_without_the_path_is_quoted() -> None:
    """Two refusals at two addresses: the one that says why would be lost."""

    async def refuses(path: str, body: object) -> object:
        yield refusal(404, b'{"detail": "Model gone"}' if path.startswith("/v1") else b"nothing here")

    with servers(refuses) as (server,):  # type: ignore[arg-type]
        assert "Model gone" in asyncio.run(look(Endpoint("a", "m", server.url.removesuffix("/v1")))).sentence


def test_the_other_scheme_and_a_wrong_name_are_said() -> None:
    """Whoever wrote http for https, or misspelt a host, would look for a server that is down."""

    class HangsUp(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.connection.close()

        do_POST, log_message = do_GET, lambda *unused: None

    def why(url: str) -> str:
        return str(asyncio.run(look(Endpoint("a", "m", url))).error)

    with HTTPServer(("127.0.0.1", 0), HangsUp) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}/v1"
        assert "if it speaks https" in why(f"http://{address}")
        assert "speaks http, not https" in why(f"https://{address}")
        server.shutdown()
    assert "the name of its host cannot be looked up" in why("http://nowhere.invalid/v1")


def test_a_certificate_that_is_not_trusted_is_named(tmp_path: object) -> None:
    """An engineer with an internal authority would be told to start a server that runs."""

    async def refused(why: str, cause: OSError | None = None) -> RemoteError:
        with pytest.raises(RemoteError) as caught:
            async with named_errors(Endpoint("a", "m", "https://host.test"), Patience()):
                raise httpx.ConnectError(why if cause else f"certificate verify failed: {why} (_ssl.c:9)") from cause
        return caught.value

    own, old = (asyncio.run(refused(why)) for why in ("self-signed certificate", "certificate has expired"))
    assert own.kind == old.kind == "certificate"
    assert "self-signed certificate; --cacert" in str(own) and str(old).endswith("certificate has expired")
    for number, words in ((EMFILE, ": Too many open files, says this machine"), (ECONNREFUSED, "")):  # ATOM#1394
        gone = asyncio.run(refused("All connection attempts failed", OSError(number, "('host.test', 80)")))
        assert str(gone) == f"the server of lane a cannot be reached{words}"
    trust(certifi.where())
    for file, words in ((__file__, "holds no certificate"), (f"{tmp_path}/none.pem", "No such file")):
        with pytest.raises(UsageError, match=words):
            trust(file)
