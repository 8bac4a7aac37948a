"""Photofinish in the browser: `python app.py`, `gradio app.py`, or a Hugging Face Space."""

from __future__ import annotations

import argparse
import socket
import sys

from app import machine
from app.backend import TorchBackend
from app.catalogue import Catalogue, load, on_hub
from app.checks import Check, look
from app.ui import build, launch
from engine.errors import UsageError


def _host(text: str) -> str:
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError) as error:
        raise argparse.ArgumentTypeError(f"must be an address of this machine, not {text!r}") from error
    return text


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be an integer from 1 to 65535, not {text!r}")


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
        help="address to serve on; 0.0.0.0 is every one (default: $GRADIO_SERVER_NAME, else 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        metavar="P",
        type=_port,
        help="port to serve on (default: $GRADIO_SERVER_PORT, else the first free one from 7860)",
    )
    parser.add_argument(
        "--target",
        metavar="T",
        help="a hub repository or a local folder (default: the best pair that this machine can run; without a GPU "
        "the bundled Gemma 3 270M)",
    )
    parser.add_argument(
        "--drafter", metavar="D", help="name or name:argument (default: the pair's; ngram for the bundled model)"
    )
    parser.add_argument(
        "--dtype",
        metavar="D",
        default="auto",
        choices=("auto", "bfloat16", "float16", "float32", "int8"),
        help="auto, bfloat16, float16, float32 or int8 (default auto: measured; int8: weights in 8 bits, on a CPU)",
    )
    parser.add_argument("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default auto)")
    parser.add_argument(
        "--pairs",
        metavar="P",
        help="what visitors may choose beside the default pair: all, loaded (pairs that need no weights but the "
        "default pair's) or ids of pairs with commas (default: all where only this machine can reach the page, else "
        "loaded; behind a proxy of your own, say loaded)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    own_page = machine.is_own_page(options.host)
    pairs = options.pairs if options.pairs is not None else "all" if own_page else "loaded"
    backend = TorchBackend(options.dtype, options.device, watched_here=own_page)
    here = machine.probe()

    def offered(known: machine.Machine) -> Catalogue:
        return load(known, options.target, options.drafter, pairs=pairs, dtype=options.dtype)

    def start(catalogue: Catalogue) -> None:
        backend.loader.start(catalogue.default.target)

    try:
        if sys.platform == "win32":
            raise UsageError(machine.NOTES[sys.platform])
        at_first = offered(here)
        check = Check(at_first, lambda: offered(look(here, on_hub(), backend.gpu_bytes)), start) if here.gpu else None
        demo = build(at_first, backend, check)
        launch(demo, options.host, options.port)
    except (UsageError, OSError) as error:
        print(f"app.py: {error}", file=sys.stderr)
        sys.exit(2)
    if check is None:
        start(at_first)
    else:
        check.start()
    demo.block_thread()
