"""Kernels of training and sampling on a GPU, in Triton.

The modules import Triton, which CUDA builds of torch bring and others need not have: whoever calls them imports them
where they are called, once the tensors are known to lie on a GPU.
"""
