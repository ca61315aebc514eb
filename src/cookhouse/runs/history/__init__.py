"""run.json: when a run was on, on what machine, and how each launch ended."""
