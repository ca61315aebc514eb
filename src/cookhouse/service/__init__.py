"""The service that a run uses, and the life of the embedded one."""
