"""Errors in the form that OpenAI's clients read."""

from typing import Any

from pydantic import ValidationError

from cookhouse.errors import InputError

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


class FieldError(InputError):
    """A field of a request cannot be used; `code` is OpenAI's word for why, where there is one."""

    def __init__(self, field: str, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.code = code


def error_body(message: str, status: int, *, field: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Body of an HTTP error, or of the last event of a stream."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": field, "code": code or _CODES.get(status)}}


def field_of(error: ValidationError) -> FieldError:
    """The first problem that was found with a request."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, problem["loc"]))[:200] or "body"
    return FieldError(field, f"{field}: {problem['msg']}")
