"""Adapters on disk, in the engine's own format and in those of others, and the card next to what is exported."""
