"""A hub on loopback: what `huggingface_hub` asks of the real one to describe, download and upload models."""

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class FakeHub:
    """Models by name, each with its files by path; and what was asked."""

    url: str = ""
    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    is_writable: bool = True


@contextlib.contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """Serve until the block ends."""
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="fake hub")
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's signature
        del format, args

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self._path()
        if not self.hub.is_writable:
            self._json({"error": "this token may only read"}, 403)
        elif path == "/api/repos/create":
            wanted = json.loads(body)
            name = "/".join(filter(None, (wanted.get("organization"), wanted["name"])))
            self.hub.models.setdefault(name, {})
            self._json({"url": f"{self.hub.url}/{name}"})
        elif path.endswith("/preupload/main"):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            self._json({"files": files})
        elif path.endswith("/commit/main"):
            name = path.removeprefix("/api/models/").removesuffix("/commit/main")
            for line in body.splitlines():
                row = json.loads(line)
                if row["key"] == "file":
                    self.hub.models[name][row["value"]["path"]] = base64.b64decode(row["value"]["content"])
            url = f"{self.hub.url}/{name}/commit/{_sha(self.hub.models[name])}"
            self._json({"success": True, "commitUrl": url, "commitOid": _sha(self.hub.models[name]), "hookOutput": ""})
        else:
            self._json({"errors": [], "warnings": []})

    def _answer(self) -> None:
        path = self._path()
        if path.startswith("/api/models/"):
            name, _, rest = path.removeprefix("/api/models/").partition("/revision/")
            name, _, tree = name.partition("/tree/")
            if name not in self.hub.models:
                self._missing()
                return
            files = self.hub.models[name]
            rows = [
                {"type": "file", "path": file, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for file, data in files.items()
            ]
            siblings = [{"rfilename": file} for file in files]
            self._json(rows if tree else {"id": name, "sha": _sha(files), "siblings": siblings, "private": False})
            return
        name, _, rest = path.removeprefix("/").partition("/resolve/")
        file = rest.partition("/")[2]
        if name not in self.hub.models or file not in self.hub.models[name]:
            self._missing()
            return
        data = self.hub.models[name][file]
        headers = {"X-Repo-Commit": _sha(self.hub.models[name]), "ETag": f'"{hashlib.sha1(data).hexdigest()}"'}
        self._send(data, headers)

    def _path(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        return path

    def _missing(self) -> None:
        self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}, status)

    def _send(self, data: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _sha(files: dict[str, bytes]) -> str:
    """Of a model, as a commit has one."""
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
