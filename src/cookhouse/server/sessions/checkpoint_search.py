"""Search among a tenant's checkpoints, newest first, in the form that tinker 0.39 documents."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field
from tinker.types.search_owner import OwnSearchOwner, SearchOwner, UserSearchOwner

from cookhouse.server.sessions.search import OWNER
from cookhouse.server.storage.store.rows import CheckpointKind, CheckpointRow

CheckpointType = Literal["training", "sampler", "external"]
TYPES: Mapping[CheckpointKind, CheckpointType] = {
    "weights": "training",
    "sampler_weights": "sampler",
    "external_weights": "external",
}
"""What clients call the kinds of checkpoints."""


class CheckpointCursor(BaseModel):
    last_created_at: AwareDatetime
    last_checkpoint_id: str


class CheckpointSearchRequest(BaseModel):
    project_ids: list[str] | None = None
    user_metadata: dict[str, str] = {}
    checkpoint_type: CheckpointType | None = None
    owner: SearchOwner = OwnSearchOwner()
    base_models: list[str] | None = None
    limit: int = Field(default=50, ge=1, le=200)
    cursor: CheckpointCursor | None = None


def search_checkpoints(
    rows: Sequence[CheckpointRow], projects: Mapping[str, str], request: CheckpointSearchRequest
) -> tuple[Sequence[CheckpointRow], CheckpointCursor | None]:
    """One page of the checkpoints that a request asks for, and where the next one begins; `projects` by session."""
    if isinstance(request.owner, UserSearchOwner) and OWNER not in request.owner.owner_urns:
        return (), None
    found = sorted((row for row in rows if _is_wanted(row, projects, request)), key=_place, reverse=True)
    if request.cursor is not None:
        after = (request.cursor.last_created_at, request.cursor.last_checkpoint_id)
        found = [row for row in found if _place(row) < after]
    page = found[: request.limit]
    if len(page) == len(found):
        return page, None
    created_at, checkpoint_id = _place(page[-1])
    return page, CheckpointCursor(last_created_at=created_at, last_checkpoint_id=checkpoint_id)


def _place(row: CheckpointRow) -> tuple[datetime, str]:
    """In the order of results; microseconds, as a cursor has them."""
    return datetime.fromtimestamp(row.created_at, UTC), row.checkpoint_id


def _is_wanted(row: CheckpointRow, projects: Mapping[str, str], request: CheckpointSearchRequest) -> bool:
    project = projects.get(row.model_id.partition(":")[0], OWNER)
    return (
        (request.project_ids is None or project in request.project_ids)
        and (request.checkpoint_type is None or TYPES[row.kind] == request.checkpoint_type)
        and (request.base_models is None or row.base_model in request.base_models)
        and all(row.user_metadata.get(key) == value for key, value in request.user_metadata.items())
    )
