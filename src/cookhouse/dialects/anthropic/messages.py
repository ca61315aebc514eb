"""Requests for a message, and for the number of its tokens, as requests for a chat."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cookhouse.dialects.anthropic.blocks import chat_messages, result_text
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai.chat import ChatRequest, Clamped
from cookhouse.dialects.openai.fields import MAX_NAME, MAX_SHOWN, MAX_STOPS, Stop
from cookhouse.dialects.tools import leave_out

_IGNORED = frozenset(
    {
        *("betas", "billing_policy", "cache_control", "context_management", "diagnostics", "fallback_credit_token"),
        *("fallbacks", "inference_geo", "metadata", "service_tier", "speed", "thread", "user_profile_id"),
        "workspace_id",
    }
)
"""They change nothing of an answer here: caches, accounts, and the pruning of what a client sends."""
_NOT_OFFERED = {
    "container": "run code by tools of your own",
    "mcp_servers": "call them yourself, and declare their tools",
    "compaction": "shorten the conversation yourself",
}
_MAX_MESSAGES = 4096
_MAX_TOOLS = 128
_TOOL_KEYS = ("name", "input_schema")


class Thinking(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    type: str


class OutputConfig(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    effort: str | None = None
    format: dict[str, Any] | None = None


class ToolChoice(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def _as_text(system: object) -> object:
    return result_text(system, "system") if isinstance(system, list) else system


class CountRequest(BaseModel):
    """What is sent to the model; its answer is not asked for."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str = Field(min_length=1, max_length=MAX_NAME)
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MAX_MESSAGES)]
    system: Annotated[str | None, BeforeValidator(_as_text)] = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=_MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    def chat(self) -> ChatRequest:
        """The same as a request for a chat.

        Raises:
            FieldError: something of it cannot be read, or is not offered.
        """
        for name, value in (self.model_extra or {}).items():
            self._check_extra(name[:MAX_SHOWN], value)
        messages = chat_messages(self.messages)
        if self.system:
            messages = [{"role": "system", "content": self.system}, *messages]
        is_begun = messages[-1]["role"] == "assistant"
        return Clamped(
            model=self.model,
            messages=messages,
            tools=self._tools() or None,
            continue_final_message=is_begun or None,
            **self._choice(),
            **self._thought(),
            **self._sampling(),
        )

    def _check_extra(self, name: str, value: object) -> None:
        if name in _IGNORED or value in (None, [], {}):
            return
        if name in _NOT_OFFERED:
            raise FieldError(name, f"{name} is not offered here; {_NOT_OFFERED[name]}")
        raise FieldError(name, f"unknown field {name!r}; leave it out")

    def _tools(self) -> list[dict[str, Any]]:
        tools = []
        for index, tool in enumerate(self.tools or []):
            if tool.get("type") not in (None, "custom"):
                leave_out(str(tool["type"]))
            elif not all(key in tool for key in _TOOL_KEYS):
                raise FieldError(f"tools.{index}", f"tools.{index}: a tool has a name and an input_schema")
            else:
                function = {"name": tool["name"], "description": tool.get("description")}
                function |= {"parameters": tool["input_schema"], "strict": tool.get("strict")}
                tools.append({"type": "function", "function": function})
        return tools

    def _choice(self) -> Mapping[str, Any]:
        choice = self.tool_choice
        if choice is None:
            return {}
        named = {"type": "function", "function": {"name": choice.name}}
        kinds = {"auto": "auto", "none": "none", "any": "required", "tool": named}
        if choice.type not in kinds:
            raise FieldError("tool_choice.type", "tool_choice.type must be auto, any, tool or none")
        asked = {"tool_choice": kinds[choice.type]} if self.tools else {}
        return {**asked, "parallel_tool_calls": False} if choice.disable_parallel_tool_use else asked

    def _thought(self) -> Mapping[str, Any]:
        """The effort and the form of the answer. Thinking is a wish: some renderers have no switch for it."""
        effort, form = None, None
        if self.output_config is not None:
            effort, form = self.output_config.effort, self.output_config.format
        if self.thinking is not None and self.thinking.type == "disabled":
            effort = "none"
        asked: dict[str, Any] = {"reasoning_effort": effort}
        if form is not None:
            schema = {"name": "answer", "schema": form.get("schema"), "strict": True}
            asked["response_format"] = {"type": form.get("type"), "json_schema": schema}
        return asked

    def _sampling(self) -> Mapping[str, Any]:
        return {}


class MessagesRequest(CountRequest):
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)]
    stream: bool | None = None
    stop_sequences: Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None

    def _sampling(self) -> Mapping[str, Any]:
        names = ("max_tokens", "stream", "temperature", "top_k", "top_p")
        return {"stop": self.stop_sequences, **{name: getattr(self, name) for name in names}}
