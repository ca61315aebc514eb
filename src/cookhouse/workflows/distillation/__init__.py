"""The distillation workflows: teachers in, an adapter that says what they say out."""
