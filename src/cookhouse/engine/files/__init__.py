"""Adapters on disk, in the engine's own format and in that of `peft`, and the card beside what is exported."""
