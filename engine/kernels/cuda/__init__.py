"""Kernels for CUDA, in Triton: a decoder's step in few launches that read the weights once, with one result for a row
whatever the width. Not yet measured on a GPU."""
