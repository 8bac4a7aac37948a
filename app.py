"""Photofinish in the browser: `python app.py`, or a Hugging Face Space."""

import argparse
import errno
import os
import socket
import sys
from dataclasses import replace

from app.page.ending import end_now, on_signal, serve_until_signal

if __name__ == "__main__":
    on_signal(end_now)  # before the imports that take long

from app.catalogue import machine
from app.catalogue.catalogue import Catalogue, load, on_hub
from app.catalogue.hub import Check, look
from app.catalogue.limits import Limits, read_limits
from app.jobs.logs import set_up
from app.jobs.process_memory import share_one_arena
from app.jobs.server_races import EitherBackend, ServersBackend, servers_catalogue
from engine.core.errors import UsageError
from engine.core.spec import BASELINE, PLAIN
from engine.kernels.usable import may_have_gpu
from engine.loading.sources import hub_names
from engine.remote.client import trust
from engine.remote.endpoint import PREFIX, endpoints_of

ANY_HOST = ("0.0.0.0", "::")


def _host(text: str) -> str:
    """The address without brackets. Gradio's own requests to the page cannot name a zone, as fe80::1%eth0 does."""
    try:
        host = machine.bare(text)
        socket.getaddrinfo(host if "%" not in host else "", None)
    except (OSError, UnicodeError) as error:
        words = f"must be an address of this machine without a zone, not {text!r} (as given, or $GRADIO_SERVER_NAME)"
        raise argparse.ArgumentTypeError(words) from error
    return host


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be from 1 to 65535, not {text!r} (as given, or $GRADIO_SERVER_PORT)")


def _check_port(host: str, port: int | None) -> None:
    """Raise UsageError where nothing can be served on this address and port. None: Gradio looks for a free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port or 0)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # so too
            probe.bind(address)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise UsageError(f"cannot serve on {host}: {error.strerror}; give --host another address") from error
        raise UsageError(f"cannot serve on port {port}: {error.strerror}; give --port another one") from error


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="app.py",
        description="Race plain against speculative decoding of the same model, in the browser.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--host",
        metavar="H",
        type=_host,
        default=os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1",
        help="address to serve on; 0.0.0.0 is every IPv4 one, :: every IPv6 one (default: $GRADIO_SERVER_NAME, else "
        "127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        metavar="P",
        type=_port,
        default=os.environ.get("GRADIO_SERVER_PORT") or None,
        help="port to serve on (default: $GRADIO_SERVER_PORT, else the first free one from 7860)",
    )
    parser.add_argument(
        "--target",
        metavar="T",
        type=hub_names,
        help="a hub repository or a local folder (default: the best pair that this machine can run; without a GPU "
        "the bundled Gemma 3 270M)",
    )
    parser.add_argument("--drafter", metavar="D", type=hub_names, help="name[:argument] (default: the pair's or ngram)")
    parser.add_argument(
        "--dtype",
        metavar="D",
        default="auto",
        choices=("auto", "bfloat16", "float16", "float32"),
        help="auto, bfloat16, float16 or float32 (default auto: measured)",
    )
    parser.add_argument("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default auto)")
    parser.add_argument(
        "--own",
        action="store_true",
        help="whoever opens this page is its owner, and may name models and servers there, as on a page that only this "
        "machine can reach: for a page behind a tunnel that only you can use",
    )
    parser.add_argument(
        "--limits",
        metavar="FILE",
        help="what visitors may load and ask for, in TOML (docs/operate.md); such a page belongs to its operator, and "
        "nobody who opens it is its owner",
    )
    servers = parser.add_argument_group("lanes on servers, instead of the engine's own")
    servers.add_argument(
        "--lane",
        metavar="NAME=openai:URL",
        action="append",
        default=[],
        help="a lane that an OpenAI-compatible server decodes, as plain=openai:http://localhost:8000/v1; two or more, "
        "one of them called plain or baseline. The key: $OPENAI_API_KEY, or $PHOTOFINISH_KEY_<LANE>",
    )
    servers.add_argument(
        "--model",
        metavar="NAME",
        action="append",
        default=[],
        help="the model, as the servers call it; LANE=NAME for one lane's",
    )
    servers.add_argument(
        "--cacert", metavar="FILE", help="the certificate (PEM) of the authority of the servers' own certificates"
    )
    servers.add_argument("--same-device", action="store_true", help="the servers share a device: lanes take turns")
    servers.add_argument("--chat", action="store_true", help="prompts are messages for the chat endpoint")
    return parser.parse_args()


def _servers(options: argparse.Namespace, pairs: str) -> ServersBackend | None:
    """What races the lanes on servers, None where there are none. pairs: what the operator allows. Raises
    UsageError."""
    lanes = [(name, spec) for name, _, spec in (lane.partition("=") for lane in options.lane)]
    if not lanes:
        if options.model or options.same_device or options.chat or options.cacert:
            raise UsageError("--model, --same-device, --chat and --cacert are of servers: give --lane NAME=openai:URL")
        return None
    for name, spec in lanes:
        if not name or not spec.startswith(PREFIX):
            raise UsageError(f"--lane must be NAME={PREFIX}URL, not {name!r}=...")
    names = {name for name, _ in lanes}
    if options.cacert:
        trust(options.cacert)
    if len(names) < len(lanes) or len(lanes) == 1:
        raise UsageError(f"a race of servers needs two lanes or more with different names, not {len(lanes)}")
    if not names & {PLAIN, BASELINE}:
        raise UsageError(f"one lane must be called {PLAIN} or {BASELINE}: the others are compared with it")
    if options.target or options.drafter or pairs:
        raise UsageError(
            "--target, --drafter and the pairs of --limits are of lanes on this machine: give --lane without them"
        )
    return ServersBackend(endpoints_of(lanes, options.model, os.environ), options.same_device)


def _own_names(options: argparse.Namespace) -> frozenset[str] | None:
    """The names that a page is served as which only its owner can use; None for others. A proxy of one's own cannot be
    detected; behind one, --limits is given. Raises UsageError."""
    for_others = options.lane or options.limits is not None
    if options.own and (machine.is_behind_proxy() or for_others):
        raise UsageError("--own is for a page that only you can reach, without --lane and --limits")
    if not options.own and (not machine.is_own_page(options.host) or for_others):
        return None
    return frozenset() if options.host in ANY_HOST else frozenset({machine.in_url(options.host)})


def _page(options: argparse.Namespace) -> tuple[Catalogue, EitherBackend | ServersBackend, Check | None]:
    """The page's choices and backend, and the background check of what else this machine can run. Raises
    UsageError."""
    limits = Limits() if options.limits is None else read_limits(options.limits)
    if (servers := _servers(options, limits.pairs)) is not None:
        return replace(servers_catalogue(servers, options.chat), limits=limits), servers, None
    if sys.platform == "win32":
        raise UsageError(machine.NOTES[sys.platform])
    own_page = machine.is_own_page(options.host)
    pairs = limits.pairs or ("all" if (own_page and options.limits is None) or options.own else "loaded")
    here, backend = machine.Machine(may_have_gpu()), EitherBackend(options.dtype, options.device, own_page)

    def offered(known: machine.Machine) -> Catalogue:
        return replace(load(known, options.target, options.drafter, pairs=pairs, dtype=options.dtype), limits=limits)

    def start(catalogue: Catalogue) -> None:
        backend.loader.start(catalogue.default.target)

    at_first = offered(here)
    check = Check(at_first, lambda: offered(look(here, on_hub(), backend.gpu)), start) if here.gpu else None
    return at_first, backend, check


if __name__ == "__main__":
    options = arguments()
    share_one_arena()
    try:
        if os.environ.get("GRADIO_WATCH_DIRS"):
            raise UsageError("`gradio app.py` would run this program twice; start it with `python app.py`")
        machine.enter_space()
        _check_port(options.host, options.port)
        own_names = _own_names(options)
        at_first, backend, check = _page(options)
        with machine.hidden_from_gradio():
            # Gradio takes 3 s to import: mistakes in the arguments are reported first
            from app.page.ui import build, launch

            set_up()
            demo = build(at_first, backend, check, own_names)
            launch(demo, options.host, options.port)
    except (UsageError, OSError) as error:
        print(f"app.py: {error}", file=sys.stderr)
        sys.exit(2)
    if check is None:
        backend.loader.start(at_first.default.target)
    else:
        check.start()
    serve_until_signal(demo.ends)
