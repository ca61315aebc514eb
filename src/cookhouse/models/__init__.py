"""Models: the catalog, the hub, tokenizers, hyperparameters."""
