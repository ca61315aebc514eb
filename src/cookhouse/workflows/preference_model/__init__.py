"""The preference model workflow: comparisons in, an adapter that says which of two answers is better out."""
