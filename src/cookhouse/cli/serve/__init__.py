"""`cookhouse serve`: the training service in the foreground, for this machine or for others."""

from cookhouse.cli.serve.command import ServeCommand, named_weights, serve

__all__ = ["ServeCommand", "named_weights", "serve"]
