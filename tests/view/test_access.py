"""Who sees the page, and what else a browser may do with it."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.runs.kit import make_run
from tests.view.conftest import TOKEN

from cookhouse.view.access import Access
from cookhouse.view.place import Place
from cookhouse.view.serving import create_app


@pytest.fixture
def stranger(runs: Path) -> TestClient:
    """Somebody without the token."""
    make_run(runs / "secret")
    return TestClient(create_app(Place(runs), Access(TOKEN)), base_url="http://127.0.0.1:8600")


@pytest.mark.parametrize("path", ["/", "/api/", "/static/view.css", "/nowhere", "/?token=", "/?token=the-tokem"])
def test_nothing_is_shown_without_the_token(stranger: TestClient, path: str) -> None:
    # Catches a page, a file or an error that any program of this machine could read.
    answer = stranger.get(path)
    assert answer.status_code == 403
    assert "secret" not in answer.text
    assert "token" in answer.text, "and it says what is missing"
    assert "set-cookie" not in answer.headers


def test_the_address_that_was_printed_opens_all_others(stranger: TestClient) -> None:
    # Catches a cookie that a script can read, or that a browser sends with what other sites ask for.
    first = stranger.get(f"/?token={TOKEN}")
    assert first.status_code == 200
    name, *attributes = first.headers["set-cookie"].split("; ")
    assert name == f"cookhouse_8600={TOKEN}"
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    again = stranger.get("/")
    assert again.status_code == 200
    assert "set-cookie" not in again.headers


def test_two_pages_of_one_machine_keep_their_cookies_apart(runs: Path) -> None:
    # Catches a page at another port, as through a tunnel, that shuts the first one: cookies know no ports.
    one = TestClient(create_app(Place(runs), Access("one")), base_url="http://localhost:9000")
    one.get("/?token=one")
    two = TestClient(create_app(Place(runs), Access("two")), base_url="http://localhost:9001", cookies=one.cookies)
    two.get("/?token=two")
    one.cookies = two.cookies
    assert (one.get("/").status_code, two.get("/").status_code) == (200, 200)


def test_programs_send_it_as_a_bearer(stranger: TestClient) -> None:
    assert stranger.get("/api/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert stranger.get("/api/", headers={"Authorization": "Bearer nothing"}).status_code == 403
    assert stranger.get("/api/", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8600", "127.0.0.1.evil.example", "[", "localhost:x", ""]
)
def test_another_name_for_this_machine_is_refused(client: TestClient, host: str) -> None:
    # Catches DNS rebinding: a page elsewhere whose name leads here, and whose script then is of the same origin.
    answer = client.get("/api/", headers={"Host": host})
    assert answer.status_code == 421
    assert "localhost" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8600", "LOCALHOST:8600"])
def test_names_of_this_machine_are_taken_at_any_port(client: TestClient, host: str) -> None:
    # Catches an end of tunnels: `ssh -L 9000:localhost:8600` shows another port.
    assert client.get("/api/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8601", "http://localhost:8600", "https://evil.example", "null"])
def test_a_page_elsewhere_changes_nothing(client: TestClient, origin: str) -> None:
    # Catches a form on another port of this machine, which is of the same site, so that our cookie goes with it.
    assert client.post("/api/", headers={"Origin": origin}).status_code == 403
    assert client.post("/api/", headers={"Origin": "http://127.0.0.1:8600"}).status_code == 405


@pytest.mark.parametrize("path", ["/", "/api/", "/static/view.css", "/nowhere"])
def test_a_browser_is_told_what_a_page_may_not(client: TestClient, path: str) -> None:
    # Catches a page, a file or an error without the policy.
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
