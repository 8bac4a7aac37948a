"""Triton kernels for CUDA: a decoder's step in few launches that read the weights once, with the same bits for a row at
any width. Not yet measured on a GPU."""
