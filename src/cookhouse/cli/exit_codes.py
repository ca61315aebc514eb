"""Exit codes of the command, besides 0."""

EXIT_FAILED = 1
"""The service or the run failed."""
EXIT_BAD_INPUT = 2
EXIT_ENDED = 75
"""EX_TEMPFAIL of sysexits.h: a job may be put into its queue again, and goes on."""
EXIT_INTERRUPTED = 130
