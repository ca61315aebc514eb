"""Store: the folder of a server's state, the tables in it, and their versions."""
