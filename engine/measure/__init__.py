"""What a measurement was made on, what a step must read, and how fast this device reads.

May import: the engine's root, model, kernels."""
