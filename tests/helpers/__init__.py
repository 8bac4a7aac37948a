"""What tests share: tiny models, fakes, recorded races, a served page, a pretended GPU. Imports no test."""

import hashlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the repository
FIXTURES = ROOT / "tests" / "fixtures"
CHAINS = FIXTURES / "chains"  # recorded races from before trees


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """Files of this process and its children end at so many bytes: writing more fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
