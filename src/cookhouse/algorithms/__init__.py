"""The public face for algorithms."""
