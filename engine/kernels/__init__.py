"""The one seam to hardware.

`choose.choose` picks one implementation for a device and dtype. It is installed into a model and stays with it
(`Prepared.kernels`). Device-neutral code knows `torch.Kernels` alone: it never asks for a device's type.

    torch.py   what every kind has, on torch's own operations, which run anywhere; the others are compared with them
    cpu/       compiled C, and oneDNN for the linears that the C does not take
    cuda/      Triton kernels and CUDA graphs
"""
