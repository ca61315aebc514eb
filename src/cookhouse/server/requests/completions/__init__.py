"""What OpenAI's clients ask for: weights by name, and answers of theirs while they are sampled."""
