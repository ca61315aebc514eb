"""What an operator asks a server: figures that are there anyway, put together. Nothing here changes anything.

Status ──► figures of what is in memory
       ──► EngineWatch: the worker's own, a second old at most
       ──► Cached: what is read from disk and database in threads, some seconds old
"""

from cookhouse.server.status.status import Status

__all__ = ["Status"]
