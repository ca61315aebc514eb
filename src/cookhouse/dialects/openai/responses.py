"""Requests for a response, as requests for a chat."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai.chat import Clamped
from cookhouse.dialects.openai.fields import MAX_NAME, MAX_SHOWN, TopLogprobs
from cookhouse.dialects.openai.items import chat_messages, with_instructions
from cookhouse.dialects.tools import leave_out

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
"""What `include` calls the log-probabilities of an answer."""
_IGNORED = frozenset(
    {
        *("access_programs", "client_metadata", "context_management", "max_tool_calls", "moderation"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier"),
        *("stream_options", "truncation", "user"),
    }
)
"""They change nothing of an answer here: caches, accounts, and limits of tools that a server would call."""
_NOT_OFFERED = {
    "background": "wait for the answer, or stream it",
    "conversation": "use previous_response_id, or send the whole conversation",
    "prompt": "send its text as instructions",
}
_MAX_ITEMS = 8192
_MAX_TOOLS = 512


class Reasoning(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    effort: str | None = None


class TextSettings(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    format: dict[str, Any] | None = None


class ResponsesRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str = Field(min_length=1, max_length=MAX_NAME)
    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MAX_ITEMS)]
    instructions: str | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=_MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_logprobs: TopLogprobs | None = None
    include: list[str] | None = None
    reasoning: Reasoning | None = None
    text: TextSettings | None = None
    stream: bool | None = None
    store: bool | None = None
    previous_response_id: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    metadata: dict[str, Any] | None = None

    @property
    def has_handles(self) -> bool:
        """True if a client that keeps nothing sends reasoning back by what stands for it."""
        return ENCRYPTED in (self.include or ())

    @property
    def has_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ()) or bool(self.top_logprobs)

    def turns(self) -> list[dict[str, Any]]:
        """What it adds to a conversation, as messages. Raises `FieldError` on an item that cannot be read."""
        return chat_messages(self.input)

    def chat(self, turns: Sequence[Mapping[str, Any]]) -> Clamped:
        """The request for an answer to `turns`: those of the responses before, and its own.

        Raises:
            FieldError: something of it cannot be read, or is not offered.
        """
        for name, value in (self.model_extra or {}).items():
            if name in _NOT_OFFERED and value:
                raise FieldError(
                    name, f"{name} is not offered here; {_NOT_OFFERED[name]}", code="unsupported_parameter"
                )
            if name not in _IGNORED and name not in _NOT_OFFERED and value is not None:
                shown = name[:MAX_SHOWN]
                raise FieldError(shown, f"unknown field {shown!r}; leave it out", code="unknown_parameter")
        tools = self._tools()
        return Clamped(
            model=self.model,
            messages=[dict(one) for one in with_instructions(self.instructions, turns)],
            tools=tools or None,
            tool_choice=self._choice() if tools else None,
            parallel_tool_calls=self.parallel_tool_calls,
            max_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            logprobs=self.has_logprobs,
            top_logprobs=self.top_logprobs,
            reasoning_effort=None if self.reasoning is None else self.reasoning.effort,
            stream=self.stream,
            **self._form(),
        )

    @property
    def namespaces(self) -> dict[str, str]:
        """The namespace of each function that is of one, by the name by which it is offered."""
        return {tool["name"]: namespace for tool, namespace in self._functions() if namespace is not None}

    def _functions(self) -> list[tuple[dict[str, Any], str | None]]:
        """The functions that are offered, each with its namespace. Where a name is taken, the later is left out."""
        plain = [tool for tool in self.tools or [] if tool.get("type") == "function"]
        functions: list[tuple[dict[str, Any], str | None]] = [(tool, None) for tool in plain]
        taken = {tool.get("name") for tool in plain}
        for tool in self.tools or []:
            if tool.get("type") == "namespace":
                namespace, inner = tool.get("name"), tool.get("tools")
                for one in inner if isinstance(inner, list) else ():
                    is_function = isinstance(one, dict) and one.get("type") == "function"
                    if is_function and isinstance(one.get("name"), str) and one["name"] not in taken:
                        taken.add(one["name"])
                        functions.append((one, str(namespace)))
                    else:
                        leave_out(f"namespace {namespace}")
            elif tool.get("type") != "function":
                leave_out(str(tool.get("type")))
        return functions

    def _tools(self) -> list[dict[str, Any]]:
        names = ("name", "description", "parameters", "strict")
        return [
            {"type": "function", "function": {name: tool.get(name) for name in names}} for tool, _ in self._functions()
        ]

    def _choice(self) -> Any:
        choice = self.tool_choice
        if not isinstance(choice, dict):
            return choice
        if choice.get("type") == "function":
            return {"type": "function", "function": {"name": choice.get("name")}}
        if choice.get("type") == "allowed_tools":
            tools = choice.get("tools")
            if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
                raise FieldError("tool_choice.tools", "tool_choice.tools must be a list of tools")
            allowed = [{"type": "function", "function": {"name": one.get("name")}} for one in tools]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": allowed}}
        raise FieldError("tool_choice.type", "tool_choice.type must be function or allowed_tools")

    def _form(self) -> Mapping[str, Any]:
        form = None if self.text is None else self.text.format
        if form is None:
            return {}
        schema = {name: value for name, value in form.items() if name != "type"}
        nested = {"json_schema": schema} if form.get("type") == "json_schema" else {}
        return {"response_format": {"type": form.get("type"), **nested}}
