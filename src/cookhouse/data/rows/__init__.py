"""Rows by what they say: conversations, preferences, comparisons and prompts, in shapes that people have them in."""
