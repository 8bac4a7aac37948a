"""Weights and tokenizers into memory: from the bundled package, a folder, a hub, or drawn at random."""
