"""Environments of messages, and what makes one an environment of tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import tinker

from cookhouse.callables.blocking import watched
from cookhouse.callables.copies import own_copy
from cookhouse.callables.returned import function_place, refused
from cookhouse.chat import Message, Renderer, Termination, parse_messages, text_of
from cookhouse.errors import InputError
from cookhouse.rl.env.continuing import continued
from cookhouse.rl.env.env import Closable, Metrics, StepResult
from cookhouse.rl.env.own_metrics import beside_own
from cookhouse.rl.env.returned_step import returned_step
from cookhouse.rl.sampling.sampler import StopCondition
from cookhouse.rl.trajectory import observed_tokens


@dataclass(frozen=True, kw_only=True)
class MessageStepResult:
    """Result of a message in an environment; the fields of `StepResult`, with messages for tokens."""

    reward: float
    episode_done: bool
    next_messages: Sequence[Message] = ()
    """The whole conversation that the model sees next, its own message included; not read after the end."""
    metrics: Metrics = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    num_tool_calls: int = 0


class MessageEnv(Protocol):
    """One episode, used once. One that has an async `close()` is closed."""

    async def initial_observation(self) -> Sequence[Message]:
        """The first prompt."""

    async def step(self, message: Message) -> MessageStepResult:
        """Answer the model's message."""


class EnvFromMessageEnv:
    """Renders what a message environment says, and parses what the model says.

    A malformed response (cut off, with an end mark inside, or with text that is no Unicode) ends the episode with
    `malformed_reward`, and the environment never sees it; `malformed` is 1 on that step and 0 on all others.

    Where the renderer has the extension property, the model's own tokens stay in the next observation even if the
    family would write its message with other tokens, so that a conversation stays one datum and later turns are sampled
    after what was really said.

    The first step logs the `question`, the last message of a user before it, unless the environment logs one.
    """

    def __init__(self, env: MessageEnv, renderer: Renderer, *, malformed_reward: float = 0.0) -> None:
        self._env = env
        self._renderer = renderer
        self._malformed_reward = malformed_reward
        self._messages: Sequence[Message] = ()
        self._observation: list[int] = []
        self._question: dict[str, str] = {}

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        begin = self._env.initial_observation
        self._messages = _kept(begin, await watched(begin))
        with _said_by(begin):
            prompt = self._renderer.build_generation_prompt(self._messages)
        self._observation = observed_tokens(prompt)
        asked = [text_of(message) for message in self._messages if message["role"] == "user"]
        self._question = {"question": asked[-1]} if asked else {}
        return prompt, self._renderer.get_stop_sequences()

    async def step(self, action: Sequence[int]) -> StepResult:
        question, self._question = self._question, {}
        message, termination = self._renderer.parse_response(action)
        if termination == Termination.MALFORMED or not _can_be_written(message):
            return StepResult(
                reward=self._malformed_reward,
                episode_done=True,
                next_observation=tinker.ModelInput.empty(),
                next_stop_condition=self._renderer.get_stop_sequences(),
                metrics={"malformed": 1.0},
                logs=question,
            )
        said = own_copy(message)  # the environment may keep the message, and change it
        found = await watched(self._env.step, message)
        step = returned_step(self._env.step, found, MessageStepResult)
        if not step.episode_done:
            messages = _kept(self._env.step, found.next_messages)
            with _said_by(self._env.step):
                self._observation = self._next_observation(said, list(action), termination, messages)
            self._messages = messages
        return StepResult(
            reward=step.reward,
            episode_done=step.episode_done,
            next_observation=tinker.ModelInput.empty()
            if step.episode_done
            else tinker.ModelInput.from_ints(self._observation),
            next_stop_condition=self._renderer.get_stop_sequences(),
            metrics=beside_own(step.metrics, {"malformed": 0.0}),
            logs={**question, **step.logs},
            num_tool_calls=step.num_tool_calls,
        )

    async def close(self) -> None:
        if isinstance(self._env, Closable):
            await self._env.close()

    def _next_observation(
        self, message: Message, action: list[int], termination: Termination, next_messages: Sequence[Message]
    ) -> list[int]:
        rendered = observed_tokens(self._renderer.build_generation_prompt(next_messages))
        sequence, said = self._observation + action, [*self._messages, message]
        if rendered[: len(sequence)] == sequence:
            return rendered
        if termination != Termination.STOP_SEQUENCE or list(next_messages[: len(said)]) != said:
            return rendered  # the environment's messages differ from what happened
        return continued(self._renderer, sequence, said, rendered) or rendered


def _kept(function: Callable[..., Any], messages: object) -> list[Message]:
    """A copy of the conversation that a function of the environment's gave: the environment goes on with its own."""
    is_list = isinstance(messages, Sequence) and all(isinstance(message, Mapping) for message in messages)
    if not is_list or not messages:
        raise refused(function, messages, "it must return the whole conversation, a list of messages", "the messages ")
    return own_copy(list(cast("Sequence[Message]", messages)))


@contextmanager
def _said_by(function: Callable[..., Any]) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise error.at(f"the messages of {function_place(function)}") from error


def _can_be_written(message: Message) -> bool:
    """JSON in a tool call can spell half a surrogate pair, which no prompt can hold."""
    try:
        parse_messages([message])
    except InputError:
        return False
    return True
