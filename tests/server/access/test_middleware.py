"""Requests as no client library sends them, over a bare socket: cut in the middle, or of two lengths."""

import logging
import socket
from collections.abc import Iterator

import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted

ROUTES = {"/api/v1/create_session": f"X-API-Key: {KEY}", "/v1/completions": f"Authorization: Bearer {KEY}"}
PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine) as host:
        yield host


def _answer(host: Host, request: bytes, *, is_cut: bool = False) -> bytes:
    """All that comes until the server closes the connection."""
    port = int(host.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        if is_cut:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def _head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_is_cut_is_no_fault_of_ours(
    host: Host, caplog: pytest.LogCaptureFixture, path: str, framing: str
) -> None:
    """Would catch a traceback in the log for each client that goes away while it sends."""
    start = b'50\r\n{"a":' if "chunked" in framing else b'{"a":'
    assert _answer(host, _head("POST", path, ROUTES[path], framing) + start, is_cut=True) == b""
    assert _answer(host, _head("GET", "/healthz", "Connection: close")).startswith(b"HTTP/1.1 200")
    assert [record for record in caplog.records if record.levelno > logging.WARNING or record.exc_info] == []


@pytest.mark.parametrize(("method", "path"), [*(("POST", path) for path in ROUTES), ("GET", "/healthz"), ("PUT", "/x")])
def test_a_request_of_two_lengths_is_refused(host: Host, method: str, path: str) -> None:
    """Would catch a second request smuggled past a proxy that reads the other length."""
    headers = ["Content-Length: 5", "Transfer-Encoding: chunked", ROUTES.get(path, "X-Nothing: 1")]
    smuggled = _head("GET", "/healthz")
    answer = _answer(host, _head(method, path, *headers) + b"0\r\n\r\n" + smuggled)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"Content-Length and Transfer-Encoding; send one of them" in answer
    assert answer.count(b"HTTP/1.1") == 1
