"""A hub on this machine: files of one repository, of which it gives away nothing but the ranges it is asked for."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class FakeHub:
    """What it holds, and what it was asked for."""

    files: Mapping[str, bytes]
    sent: dict[str, int] = field(default_factory=dict)
    """Bytes by file."""
    url: str = ""
    tokens: set[str | None] = field(default_factory=set)
    """What was shown of who asks."""


@contextmanager
def fake_hub(
    monkeypatch: pytest.MonkeyPatch, name: str, files: Mapping[str, bytes], *, is_default: bool = True
) -> Iterator[FakeHub]:
    """Serve the files as the repository `name`: to the hub's client in this process, or to who names its address."""
    hub = FakeHub(files)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(is_head=True)

        def do_GET(self) -> None:
            self._answer(is_head=False)

        def log_message(self, *args: object) -> None:
            """Nothing is logged."""

        def _answer(self, *, is_head: bool) -> None:
            hub.tokens.add(self.headers.get("authorization"))
            if self.path.startswith(f"/api/models/{name}"):
                return self._send(200, b'{"id": "x", "siblings": []}', {}, is_head=is_head)
            file = self.path.partition(f"/{name}/resolve/main/")[2]
            if file not in files:
                return self._send(404, b"", {"X-Error-Code": "EntryNotFound"}, is_head=is_head)
            content, status = files[file], 200
            if (span := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))) is not None:
                content, status = content[int(span[1]) : int(span[2]) + 1], 206
            headers = {"ETag": '"1"', "X-Repo-Commit": "0" * 40}
            if not is_head:
                hub.sent[file] = hub.sent.get(file, 0) + len(content)
            return self._send(status, content, headers, is_head=is_head)

        def _send(self, status: int, content: bytes, headers: Mapping[str, str], *, is_head: bool) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if not is_head:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    if is_default:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
