"""HTTP routes: read a request, hand it to the service, write the answer. They hold no policy."""

from cookhouse.server.routes import archive, external_weights, futures, sampling, sessions, training

ROUTERS = (
    archive.router,
    external_weights.router,
    futures.router,
    sampling.router,
    sessions.router,
    training.router,
)

__all__ = ["ROUTERS"]
