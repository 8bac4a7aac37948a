"""Measures the engine on a bare machine with one NVIDIA GPU: see `__main__.py`. Needs torch, triton and transformers,
and no network."""
