"""The workers of a server: what they are, where each command goes, and what becomes of those that are lost."""
