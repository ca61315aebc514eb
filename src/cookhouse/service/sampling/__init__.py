"""Sampling for people: targets by name, the service that has them, and answers."""
