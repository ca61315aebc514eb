"""Kernels of training and sampling for what torch takes many passes over memory for, and operations made of them."""
