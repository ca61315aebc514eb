"""Catches requests that are done twice, or never, since the server they were sent on to did not answer."""

import asyncio
import ipaddress
import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.kills.server import free_port
from tests.server.leases.conftest import leases_of
from tests.server.leases.test_routing import in_thread
from tests.server.test_routes import Server

from cookhouse.server.leases.forwarding import FORWARDED, Forwarding, UnreachableError


def request(*headers: tuple[str, str]) -> Request:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": raw})


def failure(url: str) -> UnreachableError:
    async def send() -> None:
        forwarding = Forwarding("me")
        try:
            await forwarding.send(request(), url, b"body")
        finally:
            await forwarding.close()

    with pytest.raises(UnreachableError) as raised:
        asyncio.run(send())
    return raised.value


def test_whether_a_server_may_have_done_it() -> None:
    """Would catch a request that is sent again to a server which had it, or is not to one that was down."""
    assert failure(f"http://127.0.0.1:{free_port()}").is_unsent
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def read_and_close() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)

        thread = threading.Thread(target=read_and_close)
        thread.start()
        assert not failure(f"http://127.0.0.1:{listener.getsockname()[1]}").is_unsent
        thread.join()


def cut_once(monkeypatch: pytest.MonkeyPatch, *, is_unsent: bool) -> None:
    """Have the next request done whose answer is not received."""
    send = Forwarding.send

    async def cut(forwarding: Forwarding, *arguments: Any) -> Response:
        monkeypatch.setattr(Forwarding, "send", send)
        if not is_unsent:
            await send(forwarding, *arguments)
        raise UnreachableError("it was cut", is_unsent=is_unsent)

    monkeypatch.setattr(Forwarding, "send", cut)


@pytest.mark.parametrize(
    ("seq_id", "is_unsent", "status"), [(1, False, 200), (1, True, 200), (None, True, 200), (None, False, 503)]
)
def test_only_what_a_server_knows_again_is_sent_twice(
    two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch, seq_id: int | None, is_unsent: bool, status: int
) -> None:
    """Would catch an optimizer step without a number that is taken twice when a connection breaks."""
    first, second = two
    model_id = first.model(first.session())
    cut_once(monkeypatch, is_unsent=is_unsent)
    number = {} if seq_id is None else {"seq_id": seq_id}
    answer = in_thread(second, "/optim_step", model_id=model_id, adam_params={}, **number).result(20)
    assert answer.status_code == status, answer.text
    if status == 503:
        assert "may have done it" in answer.json()["detail"]
    first.grad_norm(model_id, 2)  # behind it
    assert [name for name, _ in first.engine.calls].count("optim_step") == 2


def test_a_dropped_server_may_have_done_it_too(two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a request without a number that is sent to the next holder, whose journal has it already."""
    first, second = two
    model_id = first.model(first.session())
    never = asyncio.Event()

    async def hang(*_: Any) -> Response:
        await never.wait()
        raise AssertionError

    monkeypatch.setattr(Forwarding, "send", hang)
    monkeypatch.setattr(leases_of(second), "lives", lambda _: False)
    answer = in_thread(second, "/optim_step", model_id=model_id, adam_params={}).result(20)
    assert (answer.status_code, "may have done it" in answer.text) == (503, True)


def test_hops_are_counted(two: tuple[Server, Server]) -> None:
    """Would catch servers that send a request round among them, each by what it last knew."""
    first, second = two
    session_id = first.session()
    for passed, status in (("a", 200), ("a, b", 503), ("a,b , c", 503)):
        answer = second.http.post("/session_heartbeat", json={"session_id": session_id}, headers={FORWARDED: passed})
        assert answer.status_code == status, passed


def certificate(folder: Path) -> tuple[Path, Path]:
    """Of an authority of its own, for this machine's address, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False).sign(key, hashes.SHA256())
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    )
    return files


def test_authorities_of_one_s_own_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch servers behind a company's certificates, which cannot reach one another and do not say why."""
    trusted, key = certificate(tmp_path)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"status": "ok", "server_id": "another"})(scope, receive, send)

    async def asked() -> str:
        port = free_port()
        config = uvicorn.Config(
            app, port=port, log_config=None, lifespan="off", ssl_certfile=trusted, ssl_keyfile=key, ws="none"
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        forwarding = Forwarding("me")
        try:
            return await forwarding.ask(f"https://127.0.0.1:{port}")
        finally:
            await forwarding.close()
            server.should_exit = True
            await serving

    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(asked())
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    assert asyncio.run(asked()) == "another"
