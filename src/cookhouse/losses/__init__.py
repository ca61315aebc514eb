"""Losses over sampled tokens and over pairs: names, options and formulas, the same at the service and in a run."""
