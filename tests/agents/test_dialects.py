"""Dialects of agents over a fake sampler: requests as published programs send them, and the published clients."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anthropic
import httpx
import numpy as np
import openai
import pytest
from tests.agents.test_env import Group, letters, shop, shopper
from tests.recorded_requests import AGENTS, chat_messages, read_request

from cookhouse.chat import Renderer, parse_messages, text_of
from cookhouse.dialects.openai.chat import given_message
from cookhouse.rl import GroupFailedError, assemble_trajectory, do_group_rollout
from cookhouse.rl.sampling.fake import FakeSampler

pytestmark = pytest.mark.anyio


def answered(body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to the first turn, from the body of the second."""
    [message] = [one for one in chat_messages(body) if one["role"] == "assistant"]
    return given_message(message)


def saying(renderer: Renderer, message: Mapping[str, Any]) -> FakeSampler:
    """Says a message one letter at a time, as no renderer writes it."""
    [parsed] = parse_messages([message])
    opening, closing = (renderer.encoder.id_of(mark) for mark in ("<tool_call>", "</tool_call>"))
    tokens = letters(renderer, text_of(parsed))
    for call in message["tool_calls"]:
        function = call["function"]
        written = json.dumps({"name": function["name"], "arguments": json.loads(function["arguments"])}, indent=1)
        tokens += [*letters(renderer, "\n" if tokens else ""), opening, *letters(renderer, f"\n{written}\n"), closing]
    stop: Any = renderer.get_stop_sequences()

    def answer(prompt: Sequence[int], rng: np.random.Generator) -> list[int]:
        del prompt, rng
        return [*tokens, *stop]

    return FakeSampler(answer)


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_second_turn_of_a_program_goes_on_from_the_first(
    shared: Path, renderer: Renderer, agent: str
) -> None:
    """Catches a spelling, a block or an item that makes a turn a branch, and a tool that is refused."""
    turns = [read_request(shared, f"{agent}_{turn}") for turn in ("turn1", "turn2")]

    async def play(task: dict[str, Any], client: Any) -> float:
        del task
        async with httpx.AsyncClient(trust_env=False, headers={"x-api-key": client.api_key}) as http:
            for turn in turns:
                path = turn["path"].removeprefix("/v1")
                answer = await http.post(f"{str(client.base_url).rstrip('/')}{path}", json=turn["body"], timeout=60)
                assert answer.status_code == 200, answer.text
        return 1.0

    sampler = saying(renderer, answered(turns[1]["body"]))
    [trajectory] = (await do_group_rollout(Group(play, renderer), sampler, seed=3)).trajectories_G
    assert [turn.metrics["tokens_again"] for turn in trajectory.transitions] == [0.0, 0.0]
    [datum] = assemble_trajectory(trajectory, [1.0] * 2)
    sampled = sum(len(turn.action.tokens) for turn in trajectory.transitions)
    assert datum.loss_fn_inputs["mask"].to_numpy().sum() == sampled


async def claude(task: dict[str, Any], client: Any) -> float:
    """A loop over Anthropic's client, every other turn as a stream."""
    del task
    tool: Any = {"name": "price", "input_schema": {"type": "object", "properties": {"item": {"type": "string"}}}}
    asked: Any = {"model": "any", "max_tokens": 512, "tools": [tool]}
    messages: Any = [{"role": "user", "content": "What does the goat cost?"}]
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    address = str(client.base_url).removesuffix("/v1/")
    async with anthropic.AsyncAnthropic(base_url=address, api_key=client.api_key, http_client=http) as model:
        counted = (await model.messages.count_tokens(model="any", messages=messages, tools=[tool])).input_tokens
        for turn in range(4):
            if turn % 2:
                async with model.messages.stream(messages=messages, **asked) as stream:
                    message = await stream.get_final_message()
            else:
                message = await model.messages.create(messages=messages, **asked)
            if turn == 0:
                assert message.usage.input_tokens == counted
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return float(message.stop_reason == "end_turn")
            messages.append({"role": "assistant", "content": [block.model_dump() for block in message.content]})
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "12"} for call in calls]
            messages.append({"role": "user", "content": results})
    return 0.0


async def responses(task: dict[str, Any], client: Any) -> float:
    """A loop over OpenAI's responses that goes on by the id of the one before, every other turn as a stream."""
    del task
    tool: Any = {"type": "function", "name": "price", "parameters": {"type": "object", "properties": {}}}
    asked: Any = {"model": "any", "tools": [tool, {"type": "web_search"}]}
    given: Any = "What does the goat cost?"
    before = None
    for turn in range(4):
        if turn % 2:
            async with client.responses.stream(input=given, previous_response_id=before, **asked) as stream:
                response = await stream.get_final_response()
        else:
            response = await client.responses.create(input=given, previous_response_id=before, **asked)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return float("it costs" in response.output_text)
        before = response.id
        given = [{"type": "function_call_output", "call_id": call.call_id, "output": "12"} for call in calls]
    return 0.0


@pytest.mark.parametrize("agent", [claude, responses])
async def test_a_loop_over_a_published_client_is_one_sequence(renderer: Renderer, agent: Any) -> None:
    """Catches an order of events that a client refuses, and turns that are not found again."""
    group = await do_group_rollout(Group(agent, renderer), shopper(renderer, num_calls=2), seed=3)
    [trajectory] = group.trajectories_G
    assert (trajectory.reward, len(trajectory.transitions)) == (1.0, 3)
    assert [turn.metrics["tokens_again"] for turn in trajectory.transitions] == [0.0] * 3
    assert len(assemble_trajectory(trajectory, [1.0] * 3)) == 1


async def test_a_refusal_has_the_form_of_its_dialect(renderer: Renderer) -> None:
    """Catches errors that Anthropic's clients cannot read, and a response that was never given as one to go on from."""
    errors: list[Any] = []

    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        headers = {"x-api-key": client.api_key}
        async with httpx.AsyncClient(trust_env=False, base_url=str(client.base_url), headers=headers) as http:
            asked = {"model": "any", "max_tokens": 4, "messages": [{"role": "user", "content": "A title?"}]}
            refused = await http.post("messages", json={**asked, "stop_sequences": ["."]})
            twice = await http.post("v1/messages", json=asked)
            errors.extend([refused.json(), twice.json()])
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model="any", input="A title?", previous_response_id="resp_0")
        errors.append(caught.value.body)
        await shop(client)
        return 1.0

    await do_group_rollout(Group(agent, renderer), shopper(renderer, num_calls=0), seed=3)
    assert errors[0]["type"] == "error"
    assert errors[0]["error"]["type"] == "invalid_request_error"
    assert "rollout that is trained" in errors[0]["error"]["message"]
    assert "ANTHROPIC_BASE_URL ends without /v1" in errors[1]["error"]["message"]
    assert errors[2]["code"] == "previous_response_not_found"


async def test_a_response_that_is_not_stored_cannot_be_gone_on_from(renderer: Renderer) -> None:
    async def agent(task: dict[str, Any], client: Any) -> float:
        del task
        first = await client.responses.create(model="any", input="A title?", store=False)
        await client.responses.create(model="any", input="And?", previous_response_id=first.id)
        return 1.0

    with pytest.raises(GroupFailedError, match="has kept no such response"):
        await do_group_rollout(Group(agent, renderer), shopper(renderer, num_calls=0), seed=3)
