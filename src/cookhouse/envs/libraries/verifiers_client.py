"""The client that a `verifiers` rollout asks: it hands each question to whoever plays, and waits for the message."""

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, cast

from cookhouse.chat import Message, parse_messages, text_of, with_tools


class MessageExchange:
    """Passes one conversation and one message at a time between the library's rollout and ours."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[Sequence[Message]] = asyncio.Queue(maxsize=1)
        self._answered: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)

    async def ask(self, messages: Sequence[Message]) -> Message:
        """On the library's side: hand over a conversation and wait for what the model says next."""
        await self._asked.put(messages)
        return await self._answered.get()

    async def asked(self) -> Sequence[Message]:
        """On ours: the conversation, when there is one."""
        return await self._asked.get()

    def answer(self, message: Message) -> None:
        """On ours: what the model said to the conversation that was handed over last."""
        self._answered.put_nowait(message)


def make_client(turn: MessageExchange) -> Any:
    """A `verifiers` client over a turn. Its class is made here, since the library is loaded only where it is used."""
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage, ToolCall

    class PolicyClient(Client):  # type: ignore[misc]
        def setup_client(self, config: Any) -> MessageExchange:
            raise NotImplementedError(f"the model that is trained is no endpoint: {config}")

        async def to_native_tool(self, tool: Any) -> dict[str, Any]:
            function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            return {"type": "function", "function": function}

        async def to_native_prompt(self, messages: Any) -> tuple[list[Message], dict[str, Any]]:
            return from_verifiers(messages), {}

        async def get_native_response(
            self,
            prompt: list[Message],
            model: str,  # noqa: ARG002
            sampling_args: Any,  # noqa: ARG002
            tools: Sequence[dict[str, Any]] | None = None,
            **_: Any,
        ) -> Message:
            return await turn.ask(with_tools(prompt, tools or ()))

        async def raise_from_native_response(self, response: Message) -> None:
            """A message that came this far is whole."""

        async def from_native_response(self, response: Message) -> Any:
            calls = [ToolCall(**call) for call in tool_calls_of(response)]
            said = ResponseMessage(
                content=text_of(response),
                tool_calls=calls or None,
                finish_reason="tool_calls" if calls else "stop",
                is_truncated=False,
            )
            return Response(id=uuid.uuid4().hex, created=0, model="policy", usage=None, message=said)

        async def close(self) -> None:
            """Nothing is held."""

    return PolicyClient(turn)


def from_verifiers(messages: Sequence[Any]) -> list[Message]:
    """Messages of the library, objects or mappings, as ours. Raises `InputError` for what no renderer could write."""
    return parse_messages(
        [_message(m if isinstance(m, Mapping) else m.model_dump(exclude_none=True)) for m in messages]
    )


def tool_calls_of(message: Message) -> list[dict[str, str]]:
    """The tool calls of a message as the library writes them: flat, arguments as JSON text, each with an id."""
    return [
        {
            "id": call.get("id") or f"call_{index}",
            "name": call["function"]["name"],
            "arguments": _json_text(call["function"]["arguments"]),
        }
        for index, call in enumerate(message.get("tool_calls", ()))
    ]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = "user" if message["role"] == "text" else message["role"]
    ours: dict[str, Any] = {"role": role, "content": message.get("content") or ""}
    if message.get("tool_calls"):
        ours["tool_calls"] = [_call(cast("Mapping[str, Any]", call)) for call in message["tool_calls"]]
    if role == "tool" and message.get("tool_call_id"):
        ours["tool_call_id"] = message["tool_call_id"]
    return ours


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {"name": call["name"], "arguments": call["arguments"]}
    return {"type": "function", "id": call["id"], "function": dict(function)}


def _json_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
