"""A web server of one answer, at a small limit of open files: prints its port, and logs to stderr.

python serve_trivial.py DESCRIPTORS HEAD_SECONDS
"""

import asyncio
import logging
import resource
import sys
from typing import Any

from cookhouse.server.access.connections import Connections, limits_of
from cookhouse.server.access.serving import make_server
from cookhouse.server.main import bind


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/file":
        with open(__file__) as file:  # noqa: ASYNC230, PTH123
            file.read()
    if scope["path"] == "/poll":
        await asyncio.sleep(60)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
    connections = Connections(limits_of(None, None, float(sys.argv[2])), lambda key: key == "tml-good")
    listener = bind("127.0.0.1", 0)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    asyncio.run(make_server(app, connections).serve(sockets=[listener]))
