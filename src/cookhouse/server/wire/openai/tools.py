"""The tools that a chat may call: functions with JSON schemas."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi.openapi.models import Schema
from pydantic import ValidationError

from cookhouse.server.wire.openai.errors import FieldError, field_of

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_tools(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools as renderers take them.

    Raises:
        FieldError: one is no function, or its parameters are no JSON schema of an object.
    """
    return [_check_tool(tool, f"tools.{index}") for index, tool in enumerate(tools)]


def _check_tool(tool: dict[str, Any], field: str) -> dict[str, Any]:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise FieldError(field, f'{field}: a tool must look like {{"type": "function", "function": {{"name": …}}}}')
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FieldError(
            f"{field}.function.name",
            f"{field}.function.name: a function's name has 1 to 64 letters, digits and any of _ -",
        )
    if description is not None and not isinstance(description, str):
        raise FieldError(f"{field}.function.description", f"{field}.function.description must be a string")
    parameters = function.get("parameters")
    if parameters is not None:
        _check_schema(parameters, f"{field}.function.parameters")
    checked = {"name": name, "description": description or "", "parameters": parameters or _NO_PARAMETERS}
    return {"type": "function", "function": checked}


def _check_schema(schema: object, field: str) -> None:
    if not isinstance(schema, dict):
        raise FieldError(
            field, f"{field} must be a JSON schema, which is an object", code="invalid_function_parameters"
        )
    try:
        Schema.model_validate(schema, strict=True)
    except ValidationError as error:
        raise FieldError(
            field, f"{field} is no JSON schema: {field_of(error)}", code="invalid_function_parameters"
        ) from error
    if schema and schema.get("type") != "object":
        raise FieldError(
            field, f'{field} must be a JSON schema of "type": "object"', code="invalid_function_parameters"
        )


_NO_PARAMETERS = {"type": "object", "properties": {}}
