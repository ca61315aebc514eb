"""Tools: functions that a model may call, with a JSON schema from their signature and docstring."""

import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from cookhouse.callables.blocking import watched_either
from cookhouse.errors import InputError

MAX_RESULT_CHARS = 16384


class ToolError(Exception):
    """Raised in a tool: its message is returned to the model. Any other exception fails the rollout."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function as a model sees it. Made by `tool`."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments, an object."""
    function: Callable[..., Any]
    max_result_chars: int = MAX_RESULT_CHARS
    """A longer result is cut, and says so."""
    _arguments: TypeAdapter[dict[str, Any]] = field(repr=False)

    def schema(self) -> dict[str, Any]:
        """The declaration, as a message's `tools` hold it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    async def call(self, arguments: Mapping[str, Any] | str) -> str:
        """The result as text for the model: a string as it is, anything else as JSON.

        Arguments that do not fit, and a `ToolError`, are returned as text that starts with `error:`.

        Raises:
            Exception: any other that the function raises.
        """
        try:
            result = await self._run(arguments)
        except ToolError as error:
            result = f"error: {error}"
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        return _bounded(text, self.max_result_chars)

    async def _run(self, arguments: Mapping[str, Any] | str) -> Any:
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")  # many models write nothing where a tool takes nothing
            except (ValueError, RecursionError) as error:
                raise ToolError(f"the arguments of {self.name} are not JSON: {error}") from error
        if not isinstance(arguments, Mapping):
            raise ToolError(f"the arguments of {self.name} must be an object, by name")
        try:
            checked = self._arguments.validate_python(ArgsKwargs((), dict(arguments)))
        except ValidationError as error:
            raise ToolError(f"the arguments of {self.name} do not fit: {_reasons(error)}") from error
        return await watched_either(self.function, **checked)


def tool(function: Callable[..., Any]) -> Tool:
    """A tool of a function, sync or async, or of a bound method; used as `@tool` or called.

    The first part of the docstring describes it, an `Args:` section its parameters. A sync function runs on the event
    loop: what waits or computes for long belongs in an async one.

    Raises:
        InputError: a parameter without a type, of a type that JSON cannot hold, or not passed by name.
    """
    name = function.__name__
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise InputError(f"tool {name}: parameter {parameter} must be passed by name")
        if parameter.annotation is inspect.Parameter.empty:
            raise InputError(f"tool {name}: parameter {parameter} has no type; annotate it")
    try:
        arguments: TypeAdapter[dict[str, Any]] = TypeAdapter(_arguments_of(function))
        schema = arguments.json_schema()
    except (PydanticUserError, NameError) as error:
        raise InputError(f"tool {name}: its parameters have no JSON schema: {error}") from error
    description, documented = _read_docstring(inspect.getdoc(function) or "")
    properties = {
        key: {"description": documented[key], **value} if key in documented else value
        for key, value in schema.get("properties", {}).items()
    }
    for value in properties.values():
        value.pop("title", None)  # pydantic's, the name again
    return Tool(
        name=name,
        description=description,
        parameters={**schema, "properties": properties},
        function=function,
        _arguments=arguments,
    )


def _arguments_of(function: Callable[..., Any]) -> Any:
    """A function of the same signature that returns its arguments, so that checking them does not run the tool."""

    @functools.wraps(function)
    def arguments(**given: Any) -> dict[str, Any]:
        return given

    return arguments


def _bounded(text: str, limit: int) -> str:
    text = text.encode(errors="replace").decode()  # no tokenizer takes half a surrogate pair
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters are not shown]"


def _reasons(error: ValidationError) -> str:
    reasons = [
        f"{'.'.join(map(str, item['loc']))}: {item['msg']}" if item["loc"] else item["msg"]
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return "; ".join(reasons)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Text before the first section, and the entries of `Args:`, each on one line."""
    description, *sections = re.split(r"^(\w+):[ \t]*$", text, flags=re.MULTILINE)
    described: dict[str, str] = {}
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title not in ("Args", "Arguments", "Parameters"):
            continue
        for entry in re.split(r"\n(?=    \S)", "\n" + inspect.cleandoc(body).replace("\n", "\n    ")):
            found = re.match(r"\s*(\w+)(?: \([^)]*\))?:\s*(.*)", entry, flags=re.DOTALL)
            if found:
                described[found[1]] = " ".join(found[2].split())
    return description.strip(), described
