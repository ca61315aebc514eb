"""Recovery of sessions, models and requests from the journal, and the life of sessions that it follows."""
