"""Notice that something changed, without what: the page asks for itself again."""

import hashlib
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

from cookhouse.errors import UnknownNameError
from cookhouse.view.events import BEAT, event
from cookhouse.view.watching import Watcher

_GONE: Final = "gone"


def position_of(signs: Any) -> str:
    """Stamp that distinguishes states of files; the page has the one from before it was made."""
    return hashlib.blake2b(repr(signs).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def change_stream(request: Request, at: Hashable, signs: Callable[[], Any]) -> StreamingResponse:
    """`changed` for each change since the position that the address or the header names, and `gone` once what the page
    is about was deleted. `signs` reads what there is to see, blocking; it raises `UnknownNameError` for what is gone.
    """
    position = request.headers.get("last-event-id") or request.query_params.get("last-event-id", "")
    events = _events(request.app.state.watcher, at, signs, position)
    return StreamingResponse(events, media_type="text/event-stream")


async def _events(watcher: Watcher, at: Hashable, signs: Callable[[], Any], position: str) -> AsyncIterator[bytes]:
    def read() -> str:
        try:
            return position_of(signs())
        except UnknownNameError:
            return _GONE

    async with watcher.looking(at, read) as look:
        async for found in look.values():
            if found is None:
                yield BEAT
            elif found != position:
                position = found
                yield event(_GONE if found == _GONE else "changed", {}, position)
