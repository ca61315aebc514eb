"""The page's files: who gets them, and what a browser may do with them."""

import re
import socket
from collections.abc import Iterator

import httpx
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.pages import STATIC
from cookhouse.server.http.app import create_app


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine) as host:
        yield host


@pytest.fixture(scope="module")
def http(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, trust_env=False) as client:
        yield client


def get(http: httpx.Client, path: str, **headers: str) -> httpx.Response:
    return http.get(path, headers=headers)


def test_the_shell_holds_nothing_and_runs_only_our_files(http: httpx.Client) -> None:
    """Would catch data in what needs no key, and script or style that stands in the page itself."""
    shell = get(http, "/page/")
    policy = shell.headers["content-security-policy"].split("; ")
    assert shell.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert {"script-src 'self'", "style-src 'self'", "connect-src 'self'"} <= set(policy)
    assert {"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} <= set(policy)
    assert "unsafe" not in shell.headers["content-security-policy"]
    assert shell.headers["x-content-type-options"] == "nosniff"
    assert shell.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", shell.text)
    for name in re.findall(r'(?:href|src)="([\w.-]+)"', shell.text):
        assert get(http, f"/page/{name}").status_code == 200, name
    assert "cookhouse/tiny" not in shell.text


def test_no_script_keeps_a_key_on_the_disk() -> None:
    """Would catch a key that outlives its tab: only what is open is kept longer."""
    kept = [file.name for file in STATIC.glob("*.js") if "localStorage" in file.read_text()]
    assert kept == ["fold.js"]


def test_only_its_files_are_there(http: httpx.Client) -> None:
    """Would catch a name that is looked up in a folder."""
    assert get(http, "/page").headers["location"] == "page/"
    for path in (
        "/page/../main.py",
        "/page/%2e%2e/page.py",
        "/page/page.py",
        "/page/static/",
        "/page/..%2fpage.js",
    ):
        assert get(http, path).status_code == 404, path
    assert get(http, "/page/server.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::2]:1"]
)
def test_a_page_of_another_name_gets_nothing(http: httpx.Client, name: str) -> None:
    """Would catch a stranger's page whose name was made to lead to this machine."""
    for path in ("/page/", "/page/server.js", "/api/v1/status", "/metrics", "/healthz", "/v1/models", "/nothing"):
        answer = get(http, path, Host=name, **{"X-API-Key": KEY})
        assert answer.status_code == 421, (path, answer.text)
        assert "a proxy before it" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:8000", "localhost:9", "LOCALHOST", "[::1]:8000", "[::1]"])
def test_this_machines_own_names_are_let_in(http: httpx.Client, name: str) -> None:
    assert get(http, "/page/", Host=name).status_code == 200
    assert get(http, "/api/v1/status", Host=name, **{"X-API-Key": KEY}).status_code == 200


def test_a_server_for_other_machines_has_any_name(host: Host) -> None:
    for is_loopback in (True, False):
        middleware = create_app(host.service, is_loopback=is_loopback).user_middleware
        assert [one.kwargs for one in middleware if "is_loopback" in one.kwargs] == [{"is_loopback": is_loopback}]


def test_a_supervisor_that_names_no_host_is_answered(http: httpx.Client) -> None:
    """HTTP/1.0 has none, and no browser speaks it."""
    url = http.base_url
    with socket.create_connection((url.host, url.port or 0)) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
