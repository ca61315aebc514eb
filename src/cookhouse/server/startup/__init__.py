"""Start of a server's process: its command line, and its libraries."""
