"""An agent environment: the model calls tools until it answers, and the answer is graded."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from cookhouse.callables.blocking import watched
from cookhouse.callables.copies import own_copy
from cookhouse.callables.returned import refused, returned_metrics, returned_reward
from cookhouse.chat import Message, ToolCall, UnparsedToolCall, with_tools
from cookhouse.errors import InputError
from cookhouse.rl.env.env import Metrics
from cookhouse.rl.env.message_env import MessageStepResult
from cookhouse.rl.env.own_metrics import beside_own
from cookhouse.rl.env.tools import Tool

RewardFunction: TypeAlias = Callable[[Sequence[Message]], Awaitable[tuple[float, Metrics]]]
"""Reward and metrics of a finished conversation, whose last message is the answer."""

_MAX_CALLS_PER_MESSAGE = 16


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
        calls = message.get("tool_calls", [])
        unparsed = message.get("unparsed_tool_calls", [])
        if not calls and not unparsed:
            reward, metrics = self._rewarded(await watched(self._reward, own_copy(self._messages)))
            counts = {"tool_calls": 0.0, "tool_errors": 0.0}
            return MessageStepResult(reward=reward, episode_done=True, metrics=beside_own(metrics, counts))
        results = [await self._answer(index, call) for index, call in enumerate(calls)]
        results += [_unreadable(call) for call in unparsed]
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
