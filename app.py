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
from app.jobs.backend import TorchBackend
from app.jobs.logs import set_up
from app.jobs.process_memory import share_one_arena
from app.jobs.server_races import ServersBackend, servers_catalogue
from engine.cli.arguments import Parser, model, repeated, setting, switch, typed, whole
from engine.cli.lane_options import CACERT, MESSAGES, MODEL, SAME_DEVICE, given_lane, servers_of
from engine.cli.options import DEVICE, DTYPE
from engine.core.errors import UsageError
from engine.core.values import integer
from engine.kernels.usable import may_have_gpu

ANY_HOST = ("0.0.0.0", "::")
PORT = integer(1, 65535, wanted="from 1 to 65535 (as given, or $GRADIO_SERVER_PORT)")


def _host(text: str) -> str:
    """The address without brackets. Gradio's own requests to the page cannot name a zone, as fe80::1%eth0 does."""
    try:
        host = machine.bare(text)
        socket.getaddrinfo(host if "%" not in host else "", None)
    except (OSError, UnicodeError) as error:
        words = f"must be an address of this machine without a zone, not {text!r} (as given, or $GRADIO_SERVER_NAME)"
        raise argparse.ArgumentTypeError(words) from error
    return host


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
    """Raises UsageError."""
    options = (
        setting(
            "--host H",
            _host,
            "address to serve on; 0.0.0.0 is every IPv4 one, :: every IPv6 one (default: $GRADIO_SERVER_NAME, else "
            "127.0.0.1)",
            os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1",
        ),
        setting(
            "--port P",
            typed(PORT, whole),
            "port to serve on (default: $GRADIO_SERVER_PORT, else the first free one from 7860)",
            os.environ.get("GRADIO_SERVER_PORT") or None,
        ),
        setting(
            "--target T",
            model,
            "a hub repository or a local folder (default: the best pair that this machine can run; without a GPU the "
            "bundled Gemma 3 270M)",
        ),
        setting("--drafter D", model, "name[:argument] (default: the pair's or ngram)"),
        DTYPE,
        DEVICE,
        switch(
            "--own",
            "whoever opens this page is its owner, and may name models and servers there, as on a page that only this "
            "machine can reach: for a page behind a tunnel that only you can use",
        ),
        setting(
            "--limits FILE",
            str,
            "what visitors may load and ask for, in TOML (docs/operate.md); such a page belongs to its operator, and "
            "nobody who opens it is its owner",
        ),
        repeated(
            "--lane NAME=openai:URL",
            given_lane,
            "instead of a model here, a server, as plain=openai:http://localhost:8000/v1; two or more, one of them "
            "called plain or baseline. The key: $OPENAI_API_KEY, or $PHOTOFINISH_KEY_<LANE>",
        ),
        MODEL,
        CACERT,
        SAME_DEVICE,
        MESSAGES,
    )
    description = "Race plain against speculative decoding of the same model, in the browser."
    return Parser("app.py", description, options).parse(sys.argv[1:])


def _servers(options: argparse.Namespace, pairs: str) -> ServersBackend | None:
    """What races the lanes on servers, None where there are none. pairs: what the operator allows. Raises
    UsageError."""
    if len(options.lane) == 1:
        raise UsageError("a race of servers needs two lanes or more, not 1")
    endpoints = servers_of(options.lane, options, ("model", "same_device", "chat", "cacert"), with_plain=True)
    if endpoints and pairs:
        raise UsageError("the pairs of --limits are of lanes on this machine: give --lane without them")
    return ServersBackend(endpoints, options.same_device) if endpoints else None


def _own_names(options: argparse.Namespace) -> frozenset[str] | None:
    """The names that a page is served as which only its owner can use; None for others. A proxy of one's own cannot be
    detected; behind one, --limits is given. Raises UsageError."""
    for_others = options.lane or options.limits is not None
    if options.own and (machine.is_behind_proxy() or for_others):
        raise UsageError("--own is for a page that only you can reach, without --lane and --limits")
    if not options.own and (not machine.is_own_page(options.host) or for_others):
        return None
    return frozenset() if options.host in ANY_HOST else frozenset({machine.in_url(options.host)})


def _page(options: argparse.Namespace) -> tuple[Catalogue, TorchBackend | ServersBackend, Check | None]:
    """The page's choices and backend, and the background check of what else this machine can run. Raises
    UsageError."""
    limits = Limits() if options.limits is None else read_limits(options.limits)
    if (servers := _servers(options, limits.pairs)) is not None:
        return replace(servers_catalogue(servers, options.chat), limits=limits), servers, None
    if sys.platform == "win32":
        raise UsageError(machine.NOTES[sys.platform])
    own_page = machine.is_own_page(options.host)
    pairs = limits.pairs or ("all" if (own_page and options.limits is None) or options.own else "loaded")
    here, backend = machine.Machine(may_have_gpu()), TorchBackend(options.dtype, options.device, own_page)

    def offered(known: machine.Machine) -> Catalogue:
        return replace(load(known, options.target, options.drafter, pairs=pairs, dtype=options.dtype), limits=limits)

    def start(catalogue: Catalogue) -> None:
        backend.loader.start(catalogue.default.target)

    at_first = offered(here)
    check = Check(at_first, lambda: offered(look(here, on_hub(), backend.gpu)), start) if here.gpu else None
    return at_first, backend, check


if __name__ == "__main__":
    share_one_arena()
    try:
        options = arguments()
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
        print(f"app.py: {str(error).partition(' You can specify')[0]}", file=sys.stderr)  # Gradio's advice is for code
        sys.exit(2)
    if check is None:
        backend.loader.start(at_first.default.target)
    else:
        check.start()
    serve_until_signal(demo.ends)
