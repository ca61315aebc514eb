"""What the adapter uses of `verifiers` (0.1 and 0.2), in memory: modules, a client class, and two environments."""

import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest


class Client:
    """Hands a question through the same five steps as the library's own class."""

    def __init__(self, client: object) -> None:
        self.client = client

    async def get_response(self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **options: Any) -> Any:
        native_prompt, extra = await self.to_native_prompt(prompt)  # type: ignore[attr-defined]
        native_tools = [await self.to_native_tool(tool) for tool in tools] if tools else None  # type: ignore[attr-defined]
        native = await self.get_native_response(  # type: ignore[attr-defined]
            native_prompt, model, sampling_args, native_tools, **extra, **options
        )
        await self.raise_from_native_response(native)  # type: ignore[attr-defined]
        return await self.from_native_response(native)  # type: ignore[attr-defined]


@dataclass
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass
class ResponseMessage:
    content: str
    tool_calls: Any
    finish_reason: str
    is_truncated: bool


@dataclass
class Response:
    id: str
    created: int
    model: str
    usage: Any
    message: ResponseMessage


@dataclass
class Tool:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass
class Environment:
    """Asks twice: for anything, which it repeats back, and for the answer."""

    rows: list[dict[str, Any]]
    tools: list[Tool] = field(default_factory=list)
    failure: Exception | None = None
    error: str | None = None
    asked: list[Any] = field(default_factory=list)

    def get_dataset(self) -> list[dict[str, Any]]:
        if not self.rows:
            raise ValueError("dataset is not set")
        return self.rows

    def get_eval_dataset(self) -> list[dict[str, Any]]:
        return self.rows[:1]

    async def run_rollout(self, row: dict[str, Any], client: Any, model: str, sampling_args: Any) -> dict[str, Any]:
        if self.error:
            return {"reward": 0.0, "metrics": {}, "error": self.error}
        messages = list(row["prompt"])
        response = await client.get_response(messages, model, sampling_args, self.tools, state={})
        self.asked.append(response)
        if self.failure is not None:
            raise self.failure
        said = {"role": "assistant", "content": response.message.content}
        if response.message.tool_calls:
            said["tool_calls"] = [vars(call) for call in response.message.tool_calls]
            messages += [said, {"role": "tool", "tool_call_id": response.message.tool_calls[0].id, "content": "5"}]
        else:
            messages += [said, {"role": "user", "content": f"You said {response.message.content}. And now?"}]
        response = await client.get_response(messages, model, sampling_args, self.tools, state={})
        reward = float(response.message.content == row["answer"])
        return {"reward": reward, "metrics": {"right": reward, "unknown": None}, "error": None}


def install(monkeypatch: pytest.MonkeyPatch, environment: Environment) -> list[Any]:
    """Make the library importable; gives what `load_environment` is called with, as it is called."""
    loaded: list[Any] = []

    def load_environment(env_id: str, **env_args: Any) -> Environment:
        loaded.append((env_id, env_args))
        if env_id != "known":
            raise ValueError(f"could not import {env_id!r}")
        return environment

    package = types.ModuleType("verifiers")
    package.load_environment = load_environment  # type: ignore[attr-defined]
    clients, kinds = types.ModuleType("verifiers.clients"), types.ModuleType("verifiers.types")
    clients.Client = Client  # type: ignore[attr-defined]
    for kind in (Response, ResponseMessage, ToolCall):
        setattr(kinds, kind.__name__, kind)
    for name, module in (("verifiers", package), ("verifiers.clients", clients), ("verifiers.types", kinds)):
        monkeypatch.setitem(sys.modules, name, module)
    return loaded
