"""`python -m engine`."""

import os

from .cli.main import INTERRUPTED, main

if __name__ == "__main__":
    status = main()
    if status == INTERRUPTED:
        # Leave at once: threads that were loading are not waited for, and where the signal met compiled code Python
        # would otherwise end by it.
        os._exit(status)
    raise SystemExit(status)
