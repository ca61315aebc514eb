"""Agents over a fake sampler: what is recorded, what goes on from it, limits, retries and failures."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from cookhouse.agents import Agent, AgentEnv
from cookhouse.chat import Renderer
from cookhouse.rl import (
    Env,
    GroupFailedError,
    Metrics,
    RolloutLimits,
    Trajectory,
    TrajectoryGroup,
    assemble_trajectory,
    do_group_rollout,
)
from cookhouse.rl.rollouts.failures import minimum_viable
from cookhouse.rl.sampling.fake import FakeSampler

pytestmark = pytest.mark.anyio

PRICE: Any = {
    "type": "function",
    "function": {
        "name": "price",
        "description": "",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    },
}
ASKED: Any = [{"role": "user", "content": "What does the goat cost?"}]


@dataclass
class Group:
    """As many rollouts of an agent as there are tasks."""

    agent: Agent
    renderer: Renderer
    tasks: Sequence[dict[str, Any]] = ({},)
    seconds: float = 60.0

    async def make_envs(self) -> Sequence[Env]:
        return [
            AgentEnv(self.agent, task, self.renderer, model_name="tiny", seconds=self.seconds) for task in self.tasks
        ]

    async def compute_group_rewards(
        self, trajectories_G: Sequence[Trajectory], envs_G: Sequence[Env]
    ) -> Sequence[tuple[float, Metrics]]:
        assert len(trajectories_G) == len(envs_G)
        return [(0.0, {}) for _ in envs_G]

    def logging_tags(self) -> Sequence[str]:
        return []


def letters(renderer: Renderer, text: str) -> list[int]:
    """Tokens of a text one letter at a time, as no renderer writes it."""
    return [token for letter in text for token in renderer.encoder.encode([letter])]


def shopper(renderer: Renderer, *, num_calls: int) -> FakeSampler:
    """Calls the tool so many times, spelled as no renderer spells it, and then answers."""
    opening, closing = (renderer.encoder.id_of(mark) for mark in ("<tool_call>", "</tool_call>"))
    stop: Any = renderer.get_stop_sequences()

    def answer(prompt: Sequence[int], rng: np.random.Generator) -> list[int]:
        text = renderer.encoder.decode(prompt)
        if "A title?" in text:
            return [*letters(renderer, "Goats"), *stop]
        if text.count("<tool_response>") < num_calls:
            call = '\n{"name": "price", "arguments": {"item":  "goat", "n": 2.0}}\n'
            return [opening, *letters(renderer, call), closing, *stop]
        return [*letters(renderer, f"{rng.integers(100)} it costs"), *stop]

    return FakeSampler(answer)


async def play(
    agent: Agent, renderer: Renderer, *, num_calls: int = 2, seconds: float = 60.0, **limits: int
) -> TrajectoryGroup:
    bounds = RolloutLimits(**{"max_sequence_tokens": 2048, **limits})
    builder = Group(agent, renderer, seconds=seconds)
    return await do_group_rollout(builder, shopper(renderer, num_calls=num_calls), seed=3, limits=bounds)


async def shop(client: Any, *, before_turn: Callable[[int], Any] | None = None, respell: bool = True) -> str:
    """A loop with a tool, whose calls go back spelled anew, as pi and opencode spell them."""
    messages = [*ASKED]
    for turn in range(20):
        if before_turn is not None:
            await before_turn(turn)
        answer = await client.chat.completions.create(model="any", messages=messages, tools=[PRICE])
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return str(message.content)
        for call, back in zip(message.tool_calls, messages[-1]["tool_calls"], strict=True):
            if respell:
                value = {name: 2 if name == "n" else one for name, one in json.loads(call.function.arguments).items()}
                back["function"]["arguments"] = json.dumps(value, separators=(",", ":"))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "12"})
    raise AssertionError("the model never answered")


async def test_what_the_model_said_goes_back_as_it_was_sampled(renderer: Renderer) -> None:
    """Catches a prompt that is tokenized again: it would be another one than the weights answered."""

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        return float("it costs" in await shop(client))

    [trajectory] = (await play(agent, renderer)).trajectories_G
    assert (trajectory.reward, len(trajectory.transitions)) == (1.0, 3)
    [datum] = assemble_trajectory(trajectory, [1.0] * 3)
    sampled = sum(len(turn.action.tokens) for turn in trajectory.transitions)
    assert datum.loss_fn_inputs["mask"].to_numpy().sum() == sampled
    assert [turn.metrics["tokens_again"] for turn in trajectory.transitions] == [0.0] * 3
    assert [turn.metrics["tool_calls"] for turn in trajectory.transitions] == [1.0, 1.0, 0.0]


async def test_a_call_in_between_leaves_the_main_line_whole(renderer: Renderer) -> None:
    """Catches a conversation that a title call, streamed here, cuts in two."""
    titles: list[str] = []

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task

        async def title(turn: int) -> None:
            if turn == 1:
                asked: Any = [{"role": "user", "content": "A title?"}]
                chunks = await client.chat.completions.create(model="any", messages=asked, stream=True)
                titles.append("".join([chunk.choices[0].delta.content or "" async for chunk in chunks]))

        await shop(client, before_turn=title)
        return 1.0

    [trajectory] = (await play(agent, renderer)).trajectories_G
    assert titles == ["Goats"]
    assert len(trajectory.transitions) == 4
    title, main = assemble_trajectory(trajectory, [1.0] * 4)
    assert [datum.loss_fn_inputs["mask"].to_numpy().sum() for datum in (title, main)] == [
        len(trajectory.transitions[1].action.tokens),
        sum(len(trajectory.transitions[turn].action.tokens) for turn in (0, 2, 3)),
    ]


async def test_a_rewritten_history_is_a_sequence_of_its_own(renderer: Renderer) -> None:
    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        first = await client.chat.completions.create(model="any", messages=ASKED)
        told: Any = [*ASKED, {"role": "assistant", "content": "Something else."}, *ASKED]
        assert first.choices[0].message.content != "Something else."
        await client.chat.completions.create(model="any", messages=told)
        return 0.5

    [trajectory] = (await play(agent, renderer, num_calls=0)).trajectories_G
    assert len(assemble_trajectory(trajectory, [1.0] * 2)) == 2


async def test_the_same_seed_gives_the_same_rollouts(renderer: Renderer) -> None:
    """Catches draws that depend on anything but the rollout and the number of the call."""

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        return float(len(await shop(client)))

    one, other = [await play(agent, renderer) for _ in range(2)]
    assert one.trajectories_G == other.trajectories_G


async def test_a_body_whose_answer_was_not_read_is_the_same_call(renderer: Renderer) -> None:
    """Catches a retry that is drawn and trained twice, and a question asked twice that is taken for a retry."""

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        body = json.dumps({"model": "any", "messages": ASKED}).encode()
        headers = {"Authorization": f"Bearer {client.api_key}", "Content-Type": "application/json"}
        address = f"{client.base_url}chat/completions"
        asked.append(asyncio.Event())
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.post(address, content=body, headers=headers, timeout=0.2)
        async with httpx.AsyncClient(trust_env=False) as http:
            gate.set()
            again = [(await http.post(address, content=body, headers=headers, timeout=60)).json() for _ in range(2)]
        assert all(answer["choices"][0]["message"]["content"] for answer in again)
        return 1.0

    asked: list[asyncio.Event] = []
    gate = asyncio.Event()

    async def wait(number: int) -> None:
        if number == 0:
            await gate.wait()

    sampler = shopper(renderer, num_calls=0)
    sampler._gate = wait
    group = await do_group_rollout(Group(agent, renderer), sampler, seed=3)
    [trajectory] = group.trajectories_G
    assert len(trajectory.transitions) == 2


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_turns": 2}, "may ask the model 2 times"),
        ({"max_tool_calls": 1}, "may call tools 1 times"),
        ({"max_sequence_tokens": 100}, "maximum context length is 100 tokens"),
    ],
)
async def test_a_limit_is_kept_by_the_address(renderer: Renderer, limits: dict[str, int], reason: str) -> None:
    """Catches a model that always calls a tool, and a refusal that clients repeat."""
    statuses: list[tuple[int, str | None]] = []

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        try:
            await shop(client)
        except openai.BadRequestError as error:
            statuses.append((error.status_code, error.response.headers.get("x-should-retry")))
        return 1.0

    with pytest.raises(GroupFailedError, match=f"the last call of the agent was refused: .*{reason}"):
        await play(agent, renderer, num_calls=10**6, **limits)
    assert statuses == [(400, "false")]


async def crash(task: dict[str, Any], client: Any) -> float:
    del task, client
    raise RuntimeError("no luck")


async def leave(task: dict[str, Any], client: Any) -> float:
    del task, client
    sys.exit(3)


async def idle(task: dict[str, Any], client: Any) -> float:
    del task, client
    return 1.0


async def hang(task: dict[str, Any], client: Any) -> float:
    del task, client
    await asyncio.Event().wait()
    return 1.0


async def unpaid(task: dict[str, Any], client: Any) -> Any:
    del task
    await shop(client)
    return "much"


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        (crash, "RuntimeError: no luck"),
        (leave, "ended its process with 3"),
        (idle, "ended without a call that was answered"),
        (unpaid, "a reward is a finite number"),
    ],
)
async def test_an_agent_that_fails_is_a_record(renderer: Renderer, agent: Agent, reason: str) -> None:
    """Catches an agent that ends the run, or counts as played."""

    async def mixed(task: dict[str, Any], client: Any) -> float:
        if task:
            return await agent(task, client)
        await shop(client)
        return 1.0

    builder = Group(mixed, renderer, tasks=({}, {"bad": 1}))
    group = await do_group_rollout(builder, shopper(renderer, num_calls=1), seed=3, strategy=minimum_viable(1))
    assert len(group.trajectories_G) == 1
    [failure] = group.failures
    assert failure.member == 1
    assert reason in failure.reason


async def test_an_agent_that_hangs_is_ended(renderer: Renderer) -> None:
    with pytest.raises(GroupFailedError, match=r"took longer than agent_seconds=0\.2"):
        await do_group_rollout(Group(hang, renderer, seconds=0.2), shopper(renderer, num_calls=1), seed=3)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.3, "top_p": 0.5, "max_tokens": 9999, "presence_penalty": 0},
        {"max_tokens": 4},
        {
            "max_tokens": 9999,
            "frequency_penalty": 0,
            "logit_bias": {},
            "extra_body": {"min_p": 0, "repetition_penalty": 1.0},
        },
    ],
)
async def test_fields_of_sampling_are_the_runs(renderer: Renderer, fields: dict[str, Any]) -> None:
    """Catches settings of a client that change what is trained, and a limit of its own that is not kept."""

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        await client.chat.completions.create(model="any", messages=ASKED, **fields)
        return 1.0

    [trajectory] = (await play(agent, renderer, num_calls=0)).trajectories_G
    assert (len(trajectory.transitions[0].action.tokens) == 4) == (fields["max_tokens"] == 4)


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 1.0},
        {"frequency_penalty": 0.5},
        {"extra_body": {"min_p": 0.1}},
        {"extra_body": {"repetition_penalty": 1.1}},
        {"n": 2},
        {"stop": ["."]},
        {"logit_bias": {"3": 1}},
        {"response_format": {"type": "json_object"}},
        {"tools": [PRICE], "tool_choice": "required"},
    ],
)
async def test_what_changes_the_distribution_is_refused(renderer: Renderer, fields: dict[str, Any]) -> None:
    """Catches an answer that the weights did not give by themselves and that is trained."""

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        with pytest.raises(openai.BadRequestError, match="rollout that is trained"):
            await client.chat.completions.create(model="any", messages=ASKED, **fields)
        return 1.0

    with pytest.raises(GroupFailedError, match="rollout that is trained"):
        await play(agent, renderer)


async def test_nobody_else_is_answered(renderer: Renderer) -> None:
    """Catches an address without a key, and one that answers after its rollout."""
    found: dict[str, httpx.Response] = {}

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        async with httpx.AsyncClient(trust_env=False, base_url=str(client.base_url)) as http:
            found["no key"] = await http.post("chat/completions", json={"model": "m", "messages": ASKED})
            found["models"] = await http.get("models", headers={"x-api-key": client.api_key})
            found["elsewhere"] = await http.post("images", json={})
        await shop(client)
        return 1.0

    await play(agent, renderer)
    assert (found["no key"].status_code, found["elsewhere"].status_code) == (400, 400)
    assert "key is not the one" in found["no key"].json()["error"]["message"]
    assert found["models"].json()["data"][0]["max_model_len"] == 2048
