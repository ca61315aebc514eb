"""`cookhouse serve`: the training service in the foreground, for this machine or for others."""

from cookhouse.cli.serve.command import named_weights, serve

__all__ = ["named_weights", "serve"]
