"""`python -m engine bench`: our lanes and transformers' `generate` on the same prompts, in one run."""
