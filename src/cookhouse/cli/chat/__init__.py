"""`cookhouse chat`: a conversation with a model, on one engine from its beginning to its end."""
