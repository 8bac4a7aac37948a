"""A token from a row of logits: the noise that belongs to a position, top-k and top-p, the sampler, and which tokens of
a draft stand.

May import: the engine's root. Nothing of hardware: the sampler is handed a `Kernels`."""
