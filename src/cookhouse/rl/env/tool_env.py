"""An agent environment: the model calls tools until it answers, and the answer is graded. Tools are functions, with a
JSON schema from their signature and docstring.
"""

import functools
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from cookhouse.callables.blocking import watched, watched_either
from cookhouse.callables.copies import own_copy
from cookhouse.callables.returned import refused, returned_metrics, returned_reward
from cookhouse.chat import Message, ToolCall, UnparsedToolCall, calls_in_order, is_unparsed, with_tools
from cookhouse.errors import InputError
from cookhouse.rl.env.env import Metrics
from cookhouse.rl.env.message_env import MessageStepResult
from cookhouse.rl.env.own_metrics import beside_own

_MAX_RESULT_CHARS = 16384
RewardFunction: TypeAlias = Callable[[Sequence[Message]], Awaitable[tuple[float, Metrics]]]
"""Reward and metrics of a finished conversation, whose last message is the answer."""

_MAX_CALLS_PER_MESSAGE = 16


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
    max_result_chars: int = _MAX_RESULT_CHARS
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


class ToolEnv:
    """A message environment. A message with calls is answered by their results, in order; one without ends the episode.

    A call that cannot be read, names no tool, or comes after the `max_calls_per_message` first ones is answered by an
    error text. Steps report `tool_calls` and `tool_errors`, counts per turn. How long a model may go on calling is for
    `RolloutLimits` to say.

    Raises:
        InputError: two tools have the same name.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        reward: RewardFunction,
        *,
        max_calls_per_message: int = _MAX_CALLS_PER_MESSAGE,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise InputError(f"tools must have different names: {', '.join(sorted(tool.name for tool in tools))}")
        self._messages = with_tools(own_copy(list(messages)), [tool.schema() for tool in tools])
        self._reward = reward
        self._max_calls = max_calls_per_message

    async def initial_observation(self) -> Sequence[Message]:
        return list(self._messages)

    async def step(self, message: Message) -> MessageStepResult:
        self._messages.append(message)
        calls = calls_in_order(message)
        if not calls:
            reward, metrics = self._rewarded(await watched(self._reward, own_copy(self._messages)))
            counts = {"tool_calls": 0.0, "tool_errors": 0.0}
            return MessageStepResult(reward=reward, episode_done=True, metrics=beside_own(metrics, counts))
        results = []
        num_run = 0
        for _, call in calls:
            if is_unparsed(call):
                results.append(_unreadable(cast("UnparsedToolCall", call)))
            else:
                results.append(await self._answer(num_run, cast("ToolCall", call)))
                num_run += 1
        self._messages += results
        num_errors = sum(str(result["content"]).startswith("error:") for result in results)
        return MessageStepResult(
            reward=0.0,
            episode_done=False,
            next_messages=list(self._messages),
            metrics={"tool_calls": float(len(results)), "tool_errors": float(num_errors)},
            num_tool_calls=len(results),
        )

    def _rewarded(self, found: object) -> tuple[float, Metrics]:
        if not isinstance(found, tuple) or len(found) != 2:
            raise refused(self._reward, found, "it must return two things, a reward and a dict of metrics")
        return returned_reward(self._reward, found[0]), returned_metrics(self._reward, found[1])

    async def _answer(self, index: int, call: ToolCall) -> Message:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if index >= self._max_calls:
            content = f"error: at most {self._max_calls} calls are run for one message"
        elif name not in self._tools:
            content = f"error: there is no tool {name!r}; the tools are: {', '.join(sorted(self._tools)) or 'none'}"
        else:
            content = await self._tools[name].call(arguments)
        message: Message = {"role": "tool", "name": name, "content": content}
        if "id" in call:
            message["tool_call_id"] = call["id"]
        return message


def _unreadable(call: UnparsedToolCall) -> Message:
    return {"role": "tool", "content": f"error: this call could not be read: {call['error']}"}


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
