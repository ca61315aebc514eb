"""Pages from templates, and the JSON next to them: what a page shows is what its address under /api answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from cookhouse.pages import environment
from cookhouse.runs.history.facts import duration
from cookhouse.telemetry import entries_from_json, strict_json

NAVIGATION: Final = (
    ("Runs", "/"),
    ("Experiments", "/experiments/"),
    ("Evaluations", "/evaluations"),
    ("Playground", "/playground"),
)
"""Of every page: what a link says, and where it leads."""
_MAX_ASKED: Final = 4000
"""Characters in an address."""


def page_and_json(path: str, read: Callable[[Request], Mapping[str, Any]], template: str) -> list[Route]:
    """The routes of a page and, under /api, of the same as JSON.

    `read` gives plain values by name, which the template finds under these names; it runs in a thread, and may block.
    """

    def show(request: Request) -> Response:
        return page(template, **read(request))

    def answer(request: Request) -> Response:
        return json_answer(read(request))

    return [Route(path, show), Route(f"/api{path}", answer)]


def page(template: str, *, status_code: int = 200, **values: Any) -> HTMLResponse:
    """A whole document."""
    text = _ENVIRONMENT.get_template(template).render(values)
    return HTMLResponse(text, status_code=status_code)


def json_answer(value: Any) -> Response:
    """Plain values, as an address under /api answers."""
    return Response(strict_json(value), media_type="application/json")


def ask_address(weights: Sequence[str], asked: Sequence[tuple[str, str]]) -> str | None:
    """Address at which a question can be asked again: the playground with weights and prompt filled in. `asked`: role
    and text of what led to the answer. None: it is no single question, or too long for an address.
    """
    roles, texts = [role for role, _ in asked], [text for _, text in asked]
    if roles not in (["user"], ["system", "user"]) or not texts[-1] or sum(map(len, texts)) > _MAX_ASKED:
        return None
    system = [("system", texts[0])] if len(texts) > 1 else []
    query = [*(("weights", name) for name in weights), ("prompt", texts[-1]), *system]
    return "/playground?" + query_text(query)


def query_text(values: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """The query of an address. Half characters, of which texts of a run may have some, become question marks."""
    return urlencode(values, errors="replace")


_ENVIRONMENT = environment(base="/static/", navigation=NAVIGATION, at=None)
_ENVIRONMENT.filters |= {"duration": duration, "entries": entries_from_json}
