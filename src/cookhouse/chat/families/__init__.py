"""One file for each model family: what its messages look like in tokens."""
