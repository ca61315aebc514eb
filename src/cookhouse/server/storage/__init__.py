"""State on the disk: the database, the journal, checkpoints, and a backup of them."""
