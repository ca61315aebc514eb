"""The adapter for environments of `verifiers`, over a fake of the library."""

import asyncio
import pickle
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from tests.envs.answers import answer_with, configured
from tests.envs.libraries.fake_verifiers import Environment, Tool, install

from cookhouse.chat import Message
from cookhouse.envs import Prompting, VerifiersConfig
from cookhouse.envs.libraries.verifiers import VerifiersEnv, load_verifiers_environment
from cookhouse.errors import InputError, ServiceError
from cookhouse.rl import Closable

pytestmark = pytest.mark.anyio
ROW = {"prompt": [{"role": "user", "content": "What is 2 + 3?"}], "answer": "5", "example_id": 0}
TOOL = Tool(name="add", description="Adds.", parameters={"type": "object", "properties": {}})


@pytest.fixture(autouse=True)
def _nothing_loaded() -> Iterator[None]:
    load_verifiers_environment.cache_clear()
    yield
    load_verifiers_environment.cache_clear()


def say(text: str) -> Message:
    return {"role": "assistant", "content": text}


async def test_a_rollout_asks_the_model_turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a turn that is lost between the two sides, and a reward that comes before the end."""
    install(monkeypatch, Environment(rows=[ROW]))
    env = VerifiersEnv(Environment(rows=[ROW]), ROW, "m")
    assert await env.initial_observation() == ROW["prompt"]
    first = await env.step(say("hm"))
    assert (first.reward, first.episode_done) == (0.0, False)
    assert [message["content"] for message in first.next_messages] == ["What is 2 + 3?", "hm", "You said hm. And now?"]
    last = await env.step(say("5"))
    assert (last.reward, last.episode_done, last.metrics) == (1.0, True, {"right": 1.0})


async def test_tools_are_declared_and_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches tools that the model is not told of, and calls whose arguments or ids are lost."""
    environment = Environment(rows=[ROW], tools=[TOOL])
    install(monkeypatch, environment)
    env = VerifiersEnv(environment, ROW, "m")
    declared = (await env.initial_observation())[0]
    assert declared["tools"][0]["function"]["name"] == "add"
    call: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}],
    }
    result = await env.step(call)
    assert result.num_tool_calls == 1
    [made] = environment.asked[0].message.tool_calls
    assert (made.name, made.arguments, made.id) == ("add", '{"a": 2}', "call_0")
    assert result.next_messages[-1] == {"role": "tool", "content": "5", "tool_call_id": "call_0"}


async def test_failures_of_the_environment_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a broken environment that is trained on as reward 0."""
    install(monkeypatch, Environment(rows=[ROW]))
    env = VerifiersEnv(Environment(rows=[ROW], failure=RuntimeError("no network")), ROW, "m")
    await env.initial_observation()
    with pytest.raises(RuntimeError, match="no network"):
        await env.step(say("x"))
    env = VerifiersEnv(Environment(rows=[ROW], error="setup"), ROW, "m")
    with pytest.raises(ServiceError, match="ended before it asked the model: setup"):
        await env.initial_observation()


async def test_groups_can_be_pickled_and_leave_no_task_behind(monkeypatch: pytest.MonkeyPatch, chat: Prompting) -> None:
    """Catches a builder that holds the environment, and a rollout that goes on after a malformed answer."""
    loaded = install(monkeypatch, Environment(rows=[ROW] * 4))
    before = asyncio.all_tasks()
    settings = {"renderer_name": "qwen3_instruct", "env_args": '{"n": 4}', "batch_size": 2, "group_size": 3}
    train, test = await configured(VerifiersConfig, env_id="known", **settings).build()
    assert (len(train), len(test.get_batch(0))) == (2, 1)
    builder = pickle.loads(pickle.dumps(train.get_batch(0)[0]))
    envs = await builder.make_envs()
    assert len(envs) == 3
    assert loaded == [("known", {"n": 4})]
    await envs[0].initial_observation()
    result = await answer_with(envs[0], chat, "x", is_cut=True)
    assert result.episode_done
    assert isinstance(envs[0], Closable)
    await envs[0].close()
    assert asyncio.all_tasks() == before


async def test_the_signals_stay_the_runs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches Ctrl-C that no longer stops a run: the library takes the handlers when an environment is made."""
    environment: Any = Environment(rows=[ROW])
    install(monkeypatch, environment)
    plain = sys.modules["verifiers"].load_environment

    def load_environment(env_id: str, **env_args: Any) -> Any:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return plain(env_id, **env_args)

    monkeypatch.setattr(sys.modules["verifiers"], "load_environment", load_environment)
    before = signal.getsignal(signal.SIGINT)
    load_verifiers_environment("known")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env_id": "unknown"}, "'unknown' cannot be loaded: could not import"),
        ({"env_id": "known", "env_args": "["}, "env_args is not JSON"),
        ({"env_id": "known", "env_args": "[]"}, "env_args must be a JSON object, not list"),
        ({"env_id": "known"}, "'known' has no data to train on: dataset is not set"),
    ],
)
async def test_what_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], message: str
) -> None:
    install(monkeypatch, Environment(rows=[]))
    with pytest.raises(InputError, match=message):
        await configured(VerifiersConfig, **settings).build()


async def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(InputError, match=r"install .*\[verifiers\]"):
        await configured(VerifiersConfig, env_id="known").build()


async def test_a_series_without_environments_by_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a newer library that says to install what is installed."""
    newer = types.ModuleType("verifiers")
    newer.__dict__["__version__"] = "0.4.0"
    monkeypatch.setitem(sys.modules, "verifiers", newer)
    with pytest.raises(InputError, match=r"verifiers 0\.4\.0 is installed, .* pip install 'verifiers>=0\.1\.12,<0\.3'"):
        await configured(VerifiersConfig, env_id="known").build()
