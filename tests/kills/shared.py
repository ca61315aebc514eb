"""Servers that share a database and a folder, behind a load balancer; each is started again whenever it dies."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.store.store import Store
from tests.kills.server import KeptServer, files_in
from tests.server.leases.balancer import balanced


class SharedServers:
    """As one `KeptServer`: runs while a `with` lasts."""

    def __init__(
        self,
        folder: Path,
        number: int,
        database: str,
        options: Sequence[str],
        *,
        module: Sequence[str],
        find_engines: Callable[[int], list[int]] | None = None,
    ) -> None:
        self._shared = folder / "shared"
        self._shared.mkdir(parents=True)
        self._database = database
        self._stack = ExitStack()
        self.url = ""
        self.servers = [
            KeptServer(
                folder / f"server-{place}",
                [*options, "--database", database, "--shared-folder", str(self._shared)],
                module=module,
                find_engines=find_engines,
                is_shared=True,
            )
            for place in range(number)
        ]

    def __enter__(self) -> Self:
        for server in self.servers:
            self._stack.enter_context(server)
        self.url = self._stack.enter_context(balanced([server.port for server in self.servers]))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def exit_codes(self) -> list[int]:
        return [code for server in self.servers for code in server.exit_codes]

    def wait_until_ready(self) -> None:
        for server in self.servers:
            server.wait_until_ready()

    def end_sessions(self, sessions: Mapping[str, str]) -> None:
        """End those of keys, and have a server start alone: it deletes what the killed have left."""
        self.servers[0].end_sessions(sessions)
        first, *others = self.servers
        for server in others:
            server.stop()
        first.wait_for_start(first.terminate())
        first.wait_until_ready()

    def left_files(self) -> list[str]:
        """As of a `KeptServer`, in the shared folder and in those of each."""
        return files_in(self._shared) + [file for server in self.servers for file in server.left_files()]

    def left_processes(self) -> list[str]:
        return [process for server in self.servers for process in server.left_processes()]

    def checkpoints(self) -> list[StoredCheckpoint]:
        with closing(Store(self._database, is_shared=True)) as store:
            return [
                StoredCheckpoint(row=row, folder=self._shared / "checkpoints" / row.checkpoint_id)
                for row in store.every_checkpoint()
            ]

    def tail(self) -> str:
        return "\n".join(f"server {place}:\n{server.tail()}" for place, server in enumerate(self.servers))
