"""Steps on the CPU by compiled kernels of our own: the weights are read once whatever the width, and a row has the same
bits at every width.

`build.py` compiles the C beside it, `linear.py` and `decoder.py` put it in the place of torch's operations. Everything
here is for bfloat16."""
