"""What lies in a run folder, read by ranges and as plain data, while the run goes on writing it."""
