"""Stages: named, put together to workflows, checked, and run."""
