"""All runs of the place: a line for each, filtered as the address says."""

from typing import Any

from starlette.requests import Request

from cookhouse.runs.history.launches import RunStatus
from cookhouse.view.events import position_of
from cookhouse.view.listing import Wanted
from cookhouse.view.pages import page_and_json
from cookhouse.view.paging import Paging


def _read(request: Request) -> dict[str, Any]:
    state = request.app.state
    wanted = Wanted.of(request.query_params)
    listed = state.listing.look()
    selected = wanted.select(listed.lines)
    paging = Paging.of(request, len(selected))
    return {
        "folder": str(state.place.folder),
        "runs": paging.cut(selected),
        "num_runs": len(listed.lines),
        "paging": paging.as_json(),
        "wanted": {"recipe": wanted.recipe, "state": wanted.state, "text": wanted.text},
        "recipes": sorted({line["recipe"] for line in listed.lines if line["recipe"] is not None}),
        "states": [*RunStatus],
        "position": position_of(state.listing, listed),
    }


ROUTES = page_and_json("/", _read, "runs.html")
