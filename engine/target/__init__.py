"""A loaded model as the loop's `Target`: made ready once (`prepare`), then one sequence's state (`target`) over shared
weights.

May import: the engine's root, choice, model, kernels."""
