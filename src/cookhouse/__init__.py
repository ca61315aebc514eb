"""Fine-tune language models by recipe, on the hosted Tinker service or on cookhouse's own engine."""

__version__ = "0.1.0"
