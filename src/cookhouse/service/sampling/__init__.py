"""What to sample from, the service that has it, and answers."""
