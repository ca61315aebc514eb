"""A load balancer that knows nothing of sessions: each connection goes to the next server that accepts one."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def balanced(ports: Sequence[int]) -> Iterator[str]:
    """The URL of one before servers on this machine, until the block ends."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    balancer = _Balancer(ports)

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(balancer.serve(started))
        loop.close()

    thread = threading.Thread(target=run, name="balancer")
    thread.start()
    started.wait(10)
    try:
        yield f"http://127.0.0.1:{balancer.port}"
    finally:
        loop.call_soon_threadsafe(balancer.stop)
        thread.join(10)


class _Balancer:
    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = itertools.cycle(ports)
        self._num_ports = len(ports)
        self._stopped: asyncio.Event
        self.port = 0

    def stop(self) -> None:
        self._stopped.set()

    async def serve(self, started: threading.Event) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stopped.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # closed connections end

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
            for port in itertools.islice(self._ports, self._num_ports):
                with contextlib.suppress(OSError):
                    there, back = await asyncio.open_connection("127.0.0.1", port)
                    break
            else:
                return
            with contextlib.closing(back):
                ways = [asyncio.ensure_future(_copy(reader, back)), asyncio.ensure_future(_copy(there, writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
