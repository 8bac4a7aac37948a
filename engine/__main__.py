"""`python -m engine`."""

import os

from .cli.main import INTERRUPTED, main

if __name__ == "__main__":
    status = main()
    if status == INTERRUPTED:
        # Leave at once: no waiting for threads that load, or for Python to end where the signal met compiled code.
        os._exit(status)
    raise SystemExit(status)
