"""Functions of a user's own: their arguments, what they return, and how long they block."""
