"""The version of the package, which also runs and exports record."""

__version__ = "0.1.0"
