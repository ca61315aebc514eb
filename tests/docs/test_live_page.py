"""The page about addresses of the live page has all that there are, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from tests.view.every_kind import make_place

from cookhouse.view.access import Access
from cookhouse.view.place import Place
from cookhouse.view.routes import ROUTES
from cookhouse.view.serving import create_app

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "live-page.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(/[^`]*)` \|(?: (yes|only|no) \|)?([^|]*)", PAGE, re.MULTILINE)
QUERIES = {
    "/runs/NAME/-/charts": "?name=train/nll",
    "/compare": "?run=plain&run=pairs",
    "/compare/charts": "?run=plain&run=pairs&name=train/nll",
    "/evaluations/compare": "?run=exam-a&run=exam-b",
    "/evaluations/item": "?run=exam-a&item=1",
    "/evaluations/notes": "?run=plain",
}


def addresses() -> Iterator[tuple[str, str]]:
    """Each address that the page tells of, and what it says of it."""
    for path, json, said in ROWS:
        if json != "only":
            yield path, said
        if json in ("yes", "only"):
            yield f"/api{path}", said


def test_every_address_is_in_the_page_and_no_other() -> None:
    # Catches a page that nobody told of, one that moved, and JSON that a page has not.
    there = {_named(route.path) for route in ROUTES if isinstance(route, Route)}
    assert sorted(path for path, _ in addresses()) == sorted(there)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    runs = tmp_path_factory.mktemp("place")
    make_place(runs)
    app = create_app(Place(runs), Access("token"))
    with TestClient(app, base_url="http://localhost", headers={"Authorization": "Bearer token"}) as asking:
        yield asking


@pytest.mark.parametrize("path", [path for path, said in addresses() if "POST" not in said and "/events" not in path])
def test_an_address_answers(client: TestClient, path: str) -> None:
    plain = path.removeprefix("/api")
    run = "rates" if "experiments" in path else "of a group/rl %231 50%25" if "rollouts" in path else "plain"
    answer = client.get(path.replace("NAME", run).replace("STEP", "2") + QUERIES.get(plain, ""))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/json" if plain != path else "text/html")


def _named(path: str) -> str:
    return path.replace("{name:path}", "NAME").replace("{step}", "STEP")
