"""Workers of a server, and the commands that are under way at them."""
