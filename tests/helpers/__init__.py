"""What tests share: tiny models, fakes, recorded races, a served page, a pretended GPU. Imports the engine and the
page, never a test."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the repository
FIXTURES = ROOT / "tests" / "fixtures"
CHAINS = FIXTURES / "chains"  # recorded races from before trees
