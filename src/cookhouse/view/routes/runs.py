"""All runs of the place."""

from typing import Any

from starlette.requests import Request

from cookhouse.runs.listing.overview import RunOverview
from cookhouse.view.pages import page_and_json


def _read(request: Request) -> dict[str, Any]:
    place = request.app.state.place
    return {"folder": str(place.folder), "runs": [_line(overview) for overview in place.overviews()]}


def _line(overview: RunOverview) -> dict[str, Any]:
    """What the list shows of a run."""
    headline = overview.headline
    return {
        "name": overview.name,
        "number": overview.number,
        "depth": overview.number.count("."),
        "recipe": overview.recipe,
        "model": overview.model,
        "status": overview.status,
        "steps": overview.steps,
        "total_steps": overview.total_steps,
        "headline": None if headline is None else headline.text,
        "error": overview.error,
        "is_synthetic": overview.is_synthetic,
    }


ROUTES = page_and_json("/", _read, "runs.html")
