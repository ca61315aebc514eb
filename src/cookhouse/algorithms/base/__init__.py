"""The part that every workflow that trains shares: its state and stages, evaluations, and the account of it."""
