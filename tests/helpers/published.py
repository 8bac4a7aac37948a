"""Configurations of published models, as their owners wrote them (from memory, without what no code reads)."""

from typing import Any

from engine.loading.random_targets import CONFIGS, read_published
from tests.helpers import FIXTURES

PUBLISHED: dict[str, dict[str, Any]] = {
    path.stem.replace("--", "/", 1): read_published(path)
    for folder in (CONFIGS, FIXTURES / "published")
    for path in sorted(folder.glob("*.json"))
}
