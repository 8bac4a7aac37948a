"""Limits of the page, below those of the engine: other visitors wait for the same device."""

MAX_PROMPT_CHARS = 20_000
MAX_NEW_TOKENS = 1_000
MAX_STUDY_CHARS = 4_000_000
"""Of a file of prompts."""
MAX_MORE_LANES = 3
"""That guess, beside the first."""
