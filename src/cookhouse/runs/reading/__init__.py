"""What lies in a run directory, read by ranges and as plain data, while the run goes on writing it."""
