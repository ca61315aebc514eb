"""Grading of what models write."""
