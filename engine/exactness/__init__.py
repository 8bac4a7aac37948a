"""Which widths give bit-equal rows here, and what two lanes' equality is worth: the probe, the widths of a race,
the verdict.

May import: the engine's root, choice, model, kernels. A target to probe is handed over."""
