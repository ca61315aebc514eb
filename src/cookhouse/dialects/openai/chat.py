"""Chat completions: what is asked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cookhouse.chat import Message, parse_messages, text_of, with_tools
from cookhouse.dialects.errors import FieldError, field_of
from cookhouse.dialects.json_schema import JsonSchema
from cookhouse.dialects.openai.fields import MAX_SHOWN, SamplingFields, TopLogprobs
from cookhouse.dialects.openai.not_offered import CHAT_NOT_OFFERED, NotOffered
from cookhouse.dialects.openai.tool_choice import ToolChoice, read_tool_choice
from cookhouse.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NO_PARAMETERS = {"type": "object", "properties": {}}
_MAX_MESSAGES = 4096
_MAX_TOOLS = 128


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
            f"{field}.function.name: a function's name has 1 to 128 letters, digits and any of _ -",
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
        JsonSchema.model_validate(schema)
    except ValidationError as error:
        raise FieldError(
            field, f"{field} is no JSON schema: {field_of(error)}", code="invalid_function_parameters"
        ) from error
    if schema and schema.get("type") != "object":
        raise FieldError(
            field, f'{field} must be a JSON schema of "type": "object"', code="invalid_function_parameters"
        )


def given_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message: a developer is a system; an answer that is null, or a refusal, is its text; a call of a tool that
    takes nothing may have empty arguments. Whatever else is wrong is left for `parse_messages` to refuse.
    """
    if message.get("role") == "developer":
        return {**message, "role": "system"}
    if message.get("role") != "assistant":
        return dict(message)
    known = {**message, "content": _content(message.get("content"), message.get("refusal"))}
    if isinstance(known.get("refusal"), str):
        del known["refusal"]
    if isinstance(calls := known.get("tool_calls"), list):
        known["tool_calls"] = [_call(call) for call in calls]
    return known


def _content(content: object, refusal: object) -> object:
    if isinstance(content, list):
        return [_part(part) for part in content]
    said = refusal if isinstance(refusal, str) else ""
    return said if content is None or content == "" else content


def _part(part: object) -> object:
    if isinstance(part, dict) and part.get("type") == "refusal" and set(part) == {"type", "refusal"}:
        return {"type": "text", "text": part["refusal"]}
    return part


def _call(call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or function.get("arguments") != "":
        return call
    return {**call, "function": {**function, "arguments": "{}"}}


class TemplateSettings(BaseModel):
    """Settings that other servers pass to a chat template; here the renderers are the templates."""

    model_config = ConfigDict(strict=True, extra="allow")

    enable_thinking: bool | None = None

    def check(self) -> None:
        for name, value in (self.model_extra or {}).items():
            if value is not None:
                field = f"chat_template_kwargs.{name[:MAX_SHOWN]}"
                raise FieldError(
                    field,
                    f"{field} is not offered here, enable_thinking alone is; leave it out",
                    code="unsupported_parameter",
                )


class ChatRequest(SamplingFields):
    not_offered: ClassVar[Mapping[str, NotOffered]] = CHAT_NOT_OFFERED
    refuses_long_limit: ClassVar[bool] = True
    """Refuse a limit over what the context leaves; else the context lowers it."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MAX_MESSAGES)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=_MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    """False: at most one call in an answer."""
    chat_template_kwargs: TemplateSettings | None = None
    continue_final_message: bool | None = None
    """No field of OpenAI's, but of vLLM's: the answer goes on from the last message, which is the assistant's."""
    add_generation_prompt: bool | None = None
    """vLLM's: false goes with `continue_final_message`, and asks for nothing more."""
    echo: bool | None = None
    """vLLM's: an answer to a last message of the assistant's begins with that message."""
    reasoning_effort: Annotated[str, Field(max_length=64)] | None = None
    """A wish: renderers without such an effort answer as they do without it."""

    def check(self) -> None:
        super().check()
        if len({self.max_tokens, self.max_completion_tokens} - {None}) > 1:
            raise FieldError("max_tokens", "max_tokens and max_completion_tokens are the same here; give one of them")
        for name in ("max_tokens", "max_completion_tokens"):
            limit = getattr(self, name)
            if limit is not None and not 1 <= limit < 2**31:
                raise FieldError(name, f"{name} is {limit}; it must be from 1 to the model's context")
        if self.top_logprobs and not self.logprobs:
            raise FieldError("top_logprobs", "top_logprobs go with logprobs=true")
        if self.add_generation_prompt is False and not self.continue_final_message:
            field = "add_generation_prompt"
            raise FieldError(
                field, f"{field}=false goes with continue_final_message=true", code="unsupported_parameter"
            )
        if self.chat_template_kwargs is not None:
            self.chat_template_kwargs.check()
        choice = self.choice()
        for name in ("ignore_eos", "min_tokens"):
            if choice.is_required and getattr(self, name):
                raise FieldError(name, f"{name} does not go with a call that is required, which says where it ends")

    def choice(self) -> ToolChoice:
        """The tools that may be called.

        Raises:
            FieldError: `tool_choice` is none, or names a tool that is not there.
        """
        functions = [tool.get("function") for tool in self.tools or []]
        names = [str(function.get("name")) for function in functions if isinstance(function, dict)]
        choice = read_tool_choice(self.tool_choice, names)
        return replace(choice, is_single=choice.is_single or self.parallel_tool_calls is False)

    def called_tools(self) -> list[dict[str, Any]]:
        """Tools that may be called, each with its `strict`.

        Raises:
            FieldError: one is none.
        """
        names = self.choice().names
        checked = zip(check_tools(self.tools or []), self.tools or [], strict=True)
        strict = [{**tool["function"], "strict": given["function"].get("strict") is True} for tool, given in checked]
        return [{"type": "function", "function": function} for function in strict if function["name"] in names]

    @property
    def limit(self) -> int | None:
        """Tokens to sample at most; None: up to the model's context."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def limit_field(self) -> str:
        """The name by which it was given."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def thinks(self) -> bool | None:
        """True if the model is to think before it answers; None: as its renderer has it."""
        return None if self.chat_template_kwargs is None else self.chat_template_kwargs.enable_thinking

    def conversation(self) -> list[Message]:
        """The messages, with the tools that may be called.

        Raises:
            FieldError: one of them cannot be used.
        """
        tools, choice = check_tools(self.tools or []), self.choice()
        if choice.hides_others:
            tools = [tool for tool in tools if tool["function"]["name"] in choice.names]
        try:
            messages = parse_messages([given_message(one) for one in self.messages])
        except InputError as error:
            raise FieldError("messages", str(error)) from error
        for index, message in enumerate(messages):
            if "tools" in message:
                raise FieldError(f"messages.{index}.tools", "tools belong beside the messages, not in one of them")
            # A path would be one of this machine's.
            if not isinstance(message["content"], str) and any(part["type"] == "image" for part in message["content"]):
                raise FieldError(f"messages.{index}.content", f"message {index + 1}: images are not taken here")
        return with_tools(messages, tools)

    def begun(self, messages: Sequence[Message]) -> tuple[list[Message], str | None]:
        """The messages before the answer, and the text that it begins with, if it is given.

        Raises:
            FieldError: the last message is no text of the assistant's, and is to be continued.
        """
        if not self.continue_final_message:
            return [*messages], None
        last = messages[-1]
        if last["role"] != "assistant" or "tool_calls" in last:
            raise FieldError(
                "continue_final_message", "continue_final_message: the last message must be a text of the assistant's"
            )
        return [*messages[:-1]], text_of(last)

    @property
    def echoed(self) -> str:
        """The text that answers begin with, where that is asked for."""
        last = given_message(self.messages[-1])
        return text_of(parse_messages([last])[0]) if self.echo and last.get("role") == "assistant" else ""


class Clamped(ChatRequest):
    """A chat whose limit is an upper bound, which the context may lower."""

    refuses_long_limit: ClassVar[bool] = False
