"""An agent as an environment: a task of its own plays the rollout, and asks the model at an address of its own.

agent (a task)                                   rollout of cookhouse
POST …/chat/completions  ── call ──►  next observation
◄─ answer ─  step(action)
returns its reward       ── end ───►  StepResult with the reward
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import tinker

from cookhouse.agents.endpoint import Address, Endpoint, running_endpoint
from cookhouse.agents.rollout import AgentError, Call, Rollout
from cookhouse.callables.blocking import watched
from cookhouse.callables.copies import own_copy
from cookhouse.callables.returned import returned_reward
from cookhouse.chat import Renderer, text_of
from cookhouse.errors import InputError
from cookhouse.extras import install_command
from cookhouse.rl import RolloutLimits, StepResult, StopCondition, TokensWithLogprobs

logger = logging.getLogger(__name__)

Agent: TypeAlias = Callable[[dict[str, Any], Any], Awaitable[float]]
"""Of a task and an `openai.AsyncOpenAI`: plays the rollout, and returns its reward."""

_CLOSE_SECONDS = 10.0
"""An agent that takes longer to end when it is cancelled is left behind, and that is said."""


class AgentEnv:
    """One rollout of an agent. All reward is given at its end; each call is a step.

    A rollout fails where its agent raises, takes more than `seconds`, ends without an answer, or ends after a call that
    was refused.
    """

    def __init__(
        self, agent: Agent, task: Mapping[str, Any], renderer: Renderer, *, model_name: str, seconds: float
    ) -> None:
        self._agent = agent
        self._task = task
        self._seconds = seconds
        self._rollout = Rollout(renderer=renderer, model_name=model_name)
        self._call: Call | None = None
        self._action: TokensWithLogprobs | None = None
        self._playing: asyncio.Task[float] | None = None
        self._place: tuple[Endpoint, Address] | None = None
        self._deadline = 0.0

    def keep_limits(self, limits: RolloutLimits) -> None:
        self._rollout.limits = limits

    @property
    def max_action_tokens(self) -> int | None:
        return None if self._call is None else self._call.max_tokens

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        endpoint = running_endpoint()
        address = endpoint.open(self._rollout)
        self._place = (endpoint, address)
        self._deadline = time.monotonic() + self._seconds
        self._playing = asyncio.create_task(self._play(address))
        self._call = await self._next_call(self._playing)
        if self._call is None:
            self._reward(self._playing)
            raise AgentError("the agent ended without a call that was answered")
        return tinker.ModelInput.from_ints(self._call.prompt), self._stops

    def sampled(self, action: TokensWithLogprobs) -> None:
        self._action = action

    async def step(self, action: Sequence[int]) -> StepResult:
        call, playing, sampled = self._call, self._playing, self._action
        assert call is not None
        assert playing is not None
        assert sampled is not None
        assert [*sampled.tokens] == [*action][: len(sampled.tokens)]
        num_again = self._rollout.conversations.num_again
        num_tool_calls = self._rollout.record(call, sampled)
        said = {"answer": self._rollout.answer_text, **_question(call)}
        self._call = await self._next_call(playing)
        reward = self._reward(playing) if self._call is None else 0.0
        return StepResult(
            reward=reward,
            episode_done=self._call is None,
            next_observation=tinker.ModelInput.from_ints([] if self._call is None else self._call.prompt),
            next_stop_condition=self._stops,
            num_tool_calls=num_tool_calls,
            metrics={
                "tokens_again": float(self._rollout.conversations.num_again - num_again),
                **({"tool_calls": float(num_tool_calls)} if call.request.tools else {}),
            },
            logs=said,
        )

    async def close(self) -> None:
        """End the agent, wherever it stands, and its address."""
        try:
            if self._playing is not None and not self._playing.done():
                self._playing.cancel()
                await asyncio.wait((self._playing,), timeout=_CLOSE_SECONDS)
                if not self._playing.done():
                    logger.warning("an agent goes on %g seconds after it was cancelled, and is left", _CLOSE_SECONDS)
        finally:
            if self._place is not None:
                endpoint, address = self._place
                self._place = None
                await endpoint.close(address)

    @property
    def _stops(self) -> StopCondition:
        return self._rollout.renderer.get_stop_sequences()

    async def _play(self, address: Address) -> float:
        async with _open_client(address) as client:
            try:
                reward: object = await watched(self._agent, own_copy(dict(self._task)), client)
            except SystemExit as error:  # which would end the run
                raise AgentError(f"the agent ended its process with {error.code!r}") from error
        return returned_reward(self._agent, reward)

    async def _next_call(self, playing: "asyncio.Task[float]") -> Call | None:
        """The next call to answer; None once the agent has ended. Raises `AgentError` where that takes too long."""
        calling = asyncio.ensure_future(self._rollout.next_call())
        try:
            left = max(0.0, self._deadline - time.monotonic())
            await asyncio.wait((calling, playing), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                self._rollout.end()
                return None
            if not calling.done():
                raise AgentError(f"the agent took longer than agent_seconds={self._seconds:g}")
            return calling.result()
        finally:
            calling.cancel()
            await asyncio.wait((calling,))

    def _reward(self, playing: "asyncio.Task[float]") -> float:
        """The reward of an agent that has ended. Raises what it raised, and `AgentError` where it is no rollout."""
        if playing.cancelled():
            raise AgentError("the agent cancelled itself")
        reward = playing.result()
        if self._rollout.refusal is not None:
            raise AgentError(f"the last call of the agent was refused: {self._rollout.refusal}")
        return reward


def _open_client(address: Address) -> AbstractAsyncContextManager[Any]:
    """An `openai.AsyncOpenAI`, whose connections are closed with it. Raises `InputError` where openai is missing."""
    try:
        import openai
    except ImportError as error:
        raise InputError(f"agents are given a client of openai: {install_command('agents')}") from error
    # Nothing of the environment decides where the calls of a rollout go, and loopback has no certificate.
    http = openai.DefaultAsyncHttpxClient(trust_env=False, verify=False)
    return openai.AsyncOpenAI(base_url=address.openai_url, api_key=address.key, http_client=http)


def _question(call: Call) -> dict[str, str]:
    asked = [text_of(message) for message in call.messages if message["role"] == "user"]
    return {"question": asked[-1]} if asked else {}
