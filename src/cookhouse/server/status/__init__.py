"""Status for an operator: figures that are there anyway, put together. Nothing here changes anything.

ServerStatus ──► figures of what is in memory
       ──► WorkerWatches: what the workers say of themselves, a second old at most
       ──► Cached: what is read from disk and database in threads, some seconds old
"""

from cookhouse.server.status.metrics import Metrics
from cookhouse.server.status.status import ServerStatus
from cookhouse.server.status.worker_watch import WorkerWatches

__all__ = ["Metrics", "ServerStatus", "WorkerWatches"]
