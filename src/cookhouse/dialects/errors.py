"""Errors of fields, which every dialect writes in its own form."""

from pydantic import ValidationError

from cookhouse.errors import InputError


class FieldError(InputError):
    """A field of a request cannot be used; `code` is OpenAI's word for why, where there is one."""

    def __init__(self, field: str, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.code = code


def field_of(error: ValidationError) -> FieldError:
    """The first problem that was found with a request."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, problem["loc"]))[:200] or "body"
    return FieldError(field, f"{field}: {problem['msg']}")
