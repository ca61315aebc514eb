"""Environments to learn in."""
