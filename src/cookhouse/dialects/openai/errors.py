"""Errors in the form that OpenAI's clients read."""

from typing import Any

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def error_body(message: str, status: int, *, field: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Body of an HTTP error, or of the last event of a stream."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": field, "code": code or _CODES.get(status)}}
