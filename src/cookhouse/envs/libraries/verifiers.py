"""Any environment of `verifiers` (0.1 and 0.2): its own rollout runs here, and asks the model through this adapter.

    rollout of the library (a task)                         rollout of cookhouse
    client.get_response(prompt)  ── conversation ─►  next observation
                                 ◄─ message ───────  step(action)
    returns reward and metrics   ── end ──────────►  StepResult with the reward

One side waits while the other works. The task belongs to its environment, whose `close` cancels it.
"""

import asyncio
import functools
import json
import signal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import chz

from cookhouse.chat import Message, parse_messages, text_of, with_tools
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import EnvFactoryGroupBuilder
from cookhouse.envs.prompting import Prompting
from cookhouse.errors import InputError, ServiceError
from cookhouse.extras import install_command
from cookhouse.rl import EnvFromMessageEnv, MessageStepResult
from cookhouse.settings.documents import read_json

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@functools.cache
def load_verifiers_environment(env_id: str, env_args: str = "{}") -> Any:
    """An environment that is installed, by its id and its arguments as JSON; loaded once in each process.

    Raises:
        InputError: the library or the environment is missing, or the arguments are not a JSON object.
    """
    try:
        import verifiers
    except ImportError as error:
        raise InputError(
            f"verifiers environments need the library verifiers: {install_command('verifiers')}"
        ) from error
    if not hasattr(verifiers, "load_environment"):
        raise InputError(
            f"verifiers {getattr(verifiers, '__version__', '')} is installed, which has no load_environment; "
            "environments are those of its series 0.1 and 0.2: pip install 'verifiers>=0.1.12,<0.3'"
        )
    arguments = _object(env_args)
    # The library takes the handlers of these signals for itself; Ctrl-C is the run's.
    handlers = [(number, signal.getsignal(number)) for number in _SIGNALS]
    try:
        return verifiers.load_environment(env_id, **arguments)
    except (ImportError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"the verifiers environment {env_id!r} cannot be loaded: {error}") from error
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)


class VerifiersEnv:
    """One rollout, an environment of messages. All reward is given at the end, as the environment's rubric says."""

    def __init__(self, environment: Any, row: Mapping[str, Any], model_name: str) -> None:
        self._environment = environment
        self._row = row
        self._model_name = model_name
        self._turn = _MessageExchange()
        self._rollout: asyncio.Task[Mapping[str, Any]] | None = None

    async def initial_observation(self) -> Sequence[Message]:
        self._rollout = asyncio.get_running_loop().create_task(self._run())
        messages = await self._next_messages(self._rollout)
        if messages is None:
            raise ServiceError(
                f"the environment ended before it asked the model: {self._rollout.result().get('error')}"
            )
        return messages

    async def step(self, message: Message) -> MessageStepResult:
        assert self._rollout is not None
        logs = {"said": text_of(message)}
        self._turn.answer(message)
        messages = await self._next_messages(self._rollout)
        if messages is not None:
            num_calls = len(message.get("tool_calls", ()))
            return MessageStepResult(
                reward=0.0, episode_done=False, next_messages=messages, logs=logs, num_tool_calls=num_calls
            )
        output = self._rollout.result()
        if output.get("error"):
            raise ServiceError(f"the environment failed: {output['error']}")
        metrics = {name: float(value) for name, value in (output.get("metrics") or {}).items() if value is not None}
        return MessageStepResult(reward=float(output["reward"]), episode_done=True, metrics=metrics, logs=logs)

    async def close(self) -> None:
        """Cancel a rollout that was not played to its end."""
        if self._rollout is not None and not self._rollout.done():
            self._rollout.cancel()
            await asyncio.wait((self._rollout,))

    async def _run(self) -> Mapping[str, Any]:
        output = await self._environment.run_rollout(dict(self._row), _make_client(self._turn), self._model_name, {})
        return dict(output)

    async def _next_messages(self, rollout: "asyncio.Task[Mapping[str, Any]]") -> Sequence[Message] | None:
        """The conversation that the model is asked to go on with; None once the rollout has ended.

        Raises:
            Exception: of the environment.
        """
        asked = asyncio.ensure_future(self._turn.asked())
        try:
            await asyncio.wait((asked, rollout), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            rollout.result()
            return None
        finally:
            asked.cancel()
            await asyncio.wait((asked,))


@dataclass(frozen=True, kw_only=True)
class _MakeEnv:
    """Picklable: the environment is loaded where it is used."""

    env_id: str
    env_args: str
    row: Mapping[str, Any]
    prompting: Prompting

    def __call__(self) -> EnvFromMessageEnv:
        environment = load_verifiers_environment(self.env_id, self.env_args)
        return EnvFromMessageEnv(
            VerifiersEnv(environment, self.row, self.prompting.model_name), self.prompting.renderer
        )


@chz.chz
class VerifiersConfig(EnvConfig):
    """An installed environment, with the data that it brings."""

    unread = frozenset({"format_coef"})

    env_id: str = chz.field(doc="The environment, as `verifiers.load_environment` names it.")
    env_args: str = chz.field(default="{}", doc="Its arguments, as a JSON object.")

    async def build(self) -> tuple[GroupDataset[Mapping[str, Any]], GroupDataset[Mapping[str, Any]]]:
        """The environment's rows to train and to evaluate on; one without the latter evaluates on the former.

        Raises:
            InputError: the library or the environment is missing, or it has no data.
        """
        environment = load_verifiers_environment(self.env_id, self.env_args)
        try:
            train, test = (
                [dict(row) for row in rows] for rows in (environment.get_dataset(), environment.get_eval_dataset())
            )
        except ValueError as error:
            raise InputError(f"the verifiers environment {self.env_id!r} has no data to train on: {error}") from error
        return self.train_set(train, partial(self._group, self.group_size)), self.test_set(
            test, partial(self._group, 1)
        )

    def _group(self, group_size: int, row: Mapping[str, Any]) -> EnvFactoryGroupBuilder:
        make_env = _MakeEnv(env_id=self.env_id, env_args=self.env_args, row=row, prompting=self.prompting)
        return EnvFactoryGroupBuilder(make_env=make_env, group_size=group_size, tags=(self.env_id,))


def _object(text: str) -> dict[str, Any]:
    try:
        value = read_json(text)
    except ValueError as error:
        raise InputError(f"env_args is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"env_args must be a JSON object, not {type(value).__name__}")
    return value


class _MessageExchange:
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


def _make_client(turn: _MessageExchange) -> Any:
    """A `verifiers` client over a turn. Its class is made here, since the library is loaded only where it is used."""
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage, ToolCall

    class PolicyClient(Client):  # type: ignore[misc]
        def setup_client(self, config: Any) -> _MessageExchange:
            raise NotImplementedError(f"the model that is trained is no endpoint: {config}")

        async def to_native_tool(self, tool: Any) -> dict[str, Any]:
            function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            return {"type": "function", "function": function}

        async def to_native_prompt(self, messages: Any) -> tuple[list[Message], dict[str, Any]]:
            return _from_verifiers(messages), {}

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
            calls = [ToolCall(**call) for call in _tool_calls_of(response)]
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


def _from_verifiers(messages: Sequence[Any]) -> list[Message]:
    """Messages of the library, objects or mappings, as ours. Raises `InputError` for what no renderer could write."""
    return parse_messages(
        [_message(m if isinstance(m, Mapping) else m.model_dump(exclude_none=True)) for m in messages]
    )


def _tool_calls_of(message: Message) -> list[dict[str, str]]:
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
