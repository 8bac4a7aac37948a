"""OpenAI-compatible servers as lanes: requests, and their streamed answers."""
