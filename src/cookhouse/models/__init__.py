"""What is known of models: the catalog, the hub, tokenizers, hyperparameters."""
