"""The command line. Importing it loads neither the SDK, torch nor transformers: `--help` has to be quick."""

from cookhouse.cli.main import main

__all__ = ["main"]
