"""Training: losses, packed passes over several runs at once, and runs that train all weights."""
