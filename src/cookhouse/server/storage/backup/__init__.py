"""A copy of a server's state folder, taken while the server runs or is stopped."""
