"""`cookhouse cluster`: the workers of a server."""
