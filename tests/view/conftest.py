"""A folder of runs, its pages asked for without a server, and the same in a browser."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page
from starlette.testclient import TestClient
from tests.browser import browser, window
from tests.waiting import wait_until

from cookhouse.view.access import Access
from cookhouse.view.place import Place
from cookhouse.view.playground.playground import Playground
from cookhouse.view.serving import bind, create_app, make_server

TOKEN = "the-token"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder whose runs are shown; `tests.runs.kit.make_run(runs / "name")` puts one there."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def client(runs: Path) -> Iterator[TestClient]:
    """Asks for pages and JSON as somebody who has the token."""
    app = create_app(Place(runs), Access(TOKEN))
    with TestClient(app, base_url="http://127.0.0.1:8600", headers={"Authorization": f"Bearer {TOKEN}"}) as asking:
        yield asking


@contextmanager
def served(place: Place, playground: Playground | None = None) -> Iterator[str]:
    """The address of a real server of a place, which ends with the block."""
    with bind(0) as listener:
        server = make_server(place, Access(TOKEN), playground)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def address(runs: Path) -> Iterator[str]:
    """Where the folder is served."""
    with served(Place(runs)) as url:
        yield url


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Shared by the tests of a module, none of which runs an event loop of its own."""
    with browser() as started:
        yield started


@pytest.fixture
def show(chromium: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens a path of the served folder in a window of its own: `show("/runs/a/-/", width=420, scheme="dark")`.

    An error in the console fails the test.
    """
    with ExitStack() as windows:

        def opened(path: str, width: int = 1400, scheme: Literal["light", "dark"] = "light") -> Page:
            whole = f"{address}{path}{'&' if '?' in path else '?'}token={TOKEN}"
            return windows.enter_context(window(chromium, whole, width, scheme=scheme))

        yield opened
