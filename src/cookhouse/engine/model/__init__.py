"""Base models of `transformers`: read, given adapters and kernels, and run over packed positions."""
