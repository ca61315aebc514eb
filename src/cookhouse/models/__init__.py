"""Facts about models: the catalog, the hub, tokenizers, hyperparameters."""
