"""Learning from a teacher: its logprobs of what the student samples, or what it samples itself."""
