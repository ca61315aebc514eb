"""A process that holds a worker on a cluster, as a server does: `python -m ... ADDRESS FOLDER`."""

import asyncio
import sys
from pathlib import Path

from cookhouse.engine.transports.ray.workers import RayWorkers
from tests.engine.transports.ray.clusters import ELSEWHERE, FAKE_DRIVER, pid_of, running


async def main(address: str, folder: Path) -> None:
    with RayWorkers(address, command=FAKE_DRIVER, **ELSEWHERE) as workers:
        async with running(workers, folder) as worker:
            sys.stdout.write(f"{await pid_of(worker)} {workers.pid}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
