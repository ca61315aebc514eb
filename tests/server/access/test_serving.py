"""Catches links that a proxy's clients cannot follow, and a stranger who is taken for a proxy."""

import asyncio
from typing import Any

import pytest

from cookhouse.server.access.connections import Connections, limits_of
from cookhouse.server.access.serving import make_server


@pytest.mark.parametrize(("sender", "scheme"), [("127.0.0.1", "https"), ("::1", "https"), ("192.0.2.1", "http")])
def test_a_proxy_on_this_machine_says_how_it_was_asked(sender: str, scheme: str) -> None:
    seen: list[str] = []

    async def app(scope: Any, *_: Any) -> None:
        seen.append(scope["scheme"])

    config = make_server(app, Connections(limits_of(None, None, 60.0), lambda _: True)).config
    config.load()
    request: Any = {
        "type": "http",
        "client": (sender, 1),
        "scheme": "http",
        "headers": [(b"x-forwarded-proto", b"https")],
    }
    asyncio.run(config.loaded_app(request, None, None))
    assert seen == [scheme]
