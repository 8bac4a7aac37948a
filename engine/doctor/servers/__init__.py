"""The check-up of two servers of the same model, one plain and one speculative, or of one server alone."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from ...core.errors import RaceError, UsageError, sentence
from ...core.spec import SamplingParams
from ...progress import Progress, silent
from ...remote.client import RemoteError, new_client
from ...remote.endpoint import Endpoint, hide
from ...remote.request import Question
from ..findings import Finding, broke, is_faulty
from .answer_formats import schemas, tools
from .batches import batches, prefix_cache
from .compare_texts import texts
from .identity import drafts, identity
from .pair import NUM_AT_ONCE, Pair, Server
from .sampling import frequencies, repeats, seeds
from .server_worth import races, worth
from .thorough import CHECK, as_reported

Check = Callable[[Pair], Coroutine[Any, Any, list[Finding]] | list[Finding]]
# In the order of causes: an earlier fault explains later ones.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("reachable", identity), ("speculation", drafts), ("repeats", repeats), ("seed", seeds),
    ("sampling", frequencies), (CHECK, as_reported), ("texts", texts), ("batches", batches),
    ("JSON schema", schemas), ("tool calls", tools), ("prefix cache", prefix_cache),
    ("worth it", races), ("worth it", worth),
)  # fmt: skip
NEED_ANSWERS = (repeats, texts)  # these look at what `drafts` asked
GONE = ("connect", "timeout")  # kinds of errors after which a server is asked nothing more
FAILED = "Look into the server's log: a request of this check failed"
BUSY = "Lift the server's limit of requests for the check-up, or wait and check again"


def check_servers(
    endpoints: Sequence[Endpoint],
    prompts: Sequence[Question],
    params: SamplingParams,
    progress: Progress = silent,
    thorough: bool = False,
) -> Iterator[Finding]:
    """The findings, as they are made. Blocks; runs an event loop of its own. No key or URL is in any of them.

    endpoints: the plain server and the speculative one, of the same model; or one server.
    prompts: all texts or all conversations; the first few are asked.
    params: of the answers whose speed is measured; max_new_tokens is their length.
    progress: may raise a BaseException to give up.
    thorough: whether to sample enough tokens of each server to see a small bias.

    Raises UsageError for another number of servers, and for no prompts."""
    if not 1 <= len(endpoints) <= 2 or not prompts:
        raise UsageError(f"needs 1 or 2 servers and at least one prompt, not {len(endpoints)} and {len(prompts)}")
    with asyncio.Runner() as runner:
        servers = [Server(endpoint, new_client(NUM_AT_ONCE)) for endpoint in endpoints]
        pair = Pair(servers, prompts, params, progress, thorough)
        try:
            for name, check in CHECKS:
                if check in NEED_ANSWERS and not all(server.answers[0] for server in servers):
                    continue
                try:
                    findings = check(pair)
                    findings = findings if isinstance(findings, list) else runner.run(findings)
                except Exception as error:
                    runner.run(_end_rest())
                    if not isinstance(error, RaceError):
                        yield broke(name, error, lambda text: hide(text, pair.secrets))
                        continue
                    status = error.status or 0 if isinstance(error, RemoteError) else 0
                    says, change = sentence(hide(str(error), pair.secrets)), BUSY if status == 429 else FAILED
                    yield Finding("untested" if 0 < status < 500 else "fault", name, says, change)
                    if isinstance(error, RemoteError) and error.kind in GONE:
                        return
                    continue
                yield from findings
                if check is identity and is_faulty(findings):
                    return
        finally:
            for server in servers:
                runner.run(server.client.aclose())


async def _end_rest() -> None:
    """End what a failed check left running, which would disturb the next one."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
