"""Steps on the CPU by our own compiled kernels: the weights are read once for any width, and a row has the same bits at
every width.

`build.py` compiles the C in this folder; `linear.py` and `decoder.py` replace torch's operations by it. For bfloat16
only."""
