"""What to sample from, the service that has it, and answers: for `cookhouse sample` and `cookhouse chat`."""
