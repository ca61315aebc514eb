"""Folders that an older version wrote, and what today's does with them."""
