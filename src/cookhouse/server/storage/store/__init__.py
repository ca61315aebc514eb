"""What outlives the process: the folder of its state, the tables in it, and their versions."""
