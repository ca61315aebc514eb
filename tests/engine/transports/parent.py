"""A process that has a child, says that it is at work, and waits to be killed: `python -m ... BEGUN WORK`."""

import asyncio
import sys
from pathlib import Path

from cookhouse.engine.transports.child import Child
from tests.engine.transports.calls import FAKE_CHILD, do, options


async def main(work: str) -> None:
    child = Child(FAKE_CHILD)
    if work:
        child.begin(options(Path()), {})
        await child.events()
        child.submit([do(work)])
    sys.stdout.write("at work\n")
    sys.stdout.flush()
    await asyncio.sleep(3600)


asyncio.run(main(sys.argv[1]))
