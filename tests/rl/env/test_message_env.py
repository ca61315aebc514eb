"""Message environments as token environments."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import tinker
from tests.chat.forms import every_tokenizer
from tests.rl.scripted import OneEnvBuilder

from cookhouse.chat import Message, Renderer, get_renderer, text_of
from cookhouse.errors import InputError
from cookhouse.rl import EnvFromMessageEnv, MessageStepResult, StopCondition, TokensWithLogprobs, do_group_rollout
from cookhouse.rl.learning.assembly import assemble_trajectory
from cookhouse.rl.sampling.fake import FakeSampler

pytestmark = pytest.mark.anyio


class Echo:
    """Says back what it heard, three turns long."""

    def __init__(self, *, rewrites: bool = False) -> None:
        self.heard: list[Message] = []
        self.messages: list[Message] = [{"role": "user", "content": "Go on."}]
        self.rewrites = rewrites
        self.is_closed = False

    async def initial_observation(self) -> Sequence[Message]:
        return list(self.messages)

    async def step(self, message: Message) -> MessageStepResult:
        self.heard.append(message)
        kept: Message = {"role": "assistant", "content": "…"} if self.rewrites else message
        self.messages += [kept, {"role": "user", "content": f"You said {text_of(message)}"}]
        return MessageStepResult(
            reward=1.0,
            episode_done=len(self.heard) == 3,
            next_messages=list(self.messages),
            metrics={"heard": 2.0},
            logs={"said": text_of(message)},
            num_tool_calls=1,
        )

    async def close(self) -> None:
        self.is_closed = True


def split_up(renderer: Renderer, text: str) -> list[int]:
    """Tokens of a text, one letter at a time, as no renderer writes it, and the end mark."""
    pieces = [token for letter in text for token in renderer.encoder.encode([letter])]
    return [*pieces, *cast("list[int]", renderer.get_stop_sequences())]


async def test_messages_in_and_out(renderer: Renderer) -> None:
    echo = Echo()
    env = EnvFromMessageEnv(echo, renderer)
    prompt, stop = await env.initial_observation()
    assert prompt == renderer.build_generation_prompt([{"role": "user", "content": "Go on."}])
    assert stop == renderer.get_stop_sequences()
    action = [*renderer.encoder.encode(["Hello there"]), *cast("list[int]", stop)]
    result = await env.step(action)
    assert echo.heard == [{"role": "assistant", "content": "Hello there"}]
    assert result.next_observation == renderer.build_generation_prompt(echo.messages)
    assert (result.reward, result.metrics, result.logs) == (
        1.0,
        {"heard": 2.0, "malformed": 0.0},
        {"question": "Go on.", "said": "Hello there"},
    )
    assert result.num_tool_calls == 1
    await env.close()
    assert echo.is_closed


async def test_the_tokens_that_were_sampled_stay(renderer: Renderer) -> None:
    # Written anew they would be other tokens: each turn would be a datum of its own, and later turns would be trained
    # after words that the model did not say that way.
    echo = Echo()
    sampler = FakeSampler(lambda _prompt, _rng: split_up(renderer, "Hello there"))
    builder = OneEnvBuilder(EnvFromMessageEnv(echo, renderer))
    [trajectory] = (await do_group_rollout(builder, sampler, seed=0)).trajectories_G
    assert len(trajectory.transitions) == 3
    assert len(assemble_trajectory(trajectory, [1.0] * 3)) == 1
    decoded = renderer.encoder.decode(trajectory.transitions[2].observation.to_ints())
    assert decoded == renderer.encoder.decode(renderer.build_generation_prompt(echo.messages[:5]).to_ints())
    assert trajectory.transitions[2].observation != renderer.build_generation_prompt(echo.messages[:5])
    assert echo.is_closed


class GrammarSampler(FakeSampler):
    """Each answer ends without a stop token, as a grammar ends it, and of its first token probability was taken."""

    async def sample(
        self, prompt: tinker.ModelInput, stop: StopCondition, *, num_samples: int, max_tokens: int | None, seed: int
    ) -> Sequence[TokensWithLogprobs]:
        drawn = await super().sample(prompt, stop, num_samples=num_samples, max_tokens=max_tokens, seed=seed)
        return [replace(one, is_masked=[True] + [False] * (len(one.tokens) - 1), is_grammar_end=True) for one in drawn]


async def test_an_answer_that_a_grammar_ended_is_whole_and_its_end_is_not_trained(renderer: Renderer) -> None:
    """Catches such an answer taken for one that was cut, and a trained end mark that nobody sampled."""
    echo = Echo()
    hello, (end, *_) = split_up(renderer, "Hello")[:-1], cast("list[int]", renderer.get_stop_sequences())
    sampler = GrammarSampler(lambda _prompt, _rng: hello)
    builder = OneEnvBuilder(EnvFromMessageEnv(echo, renderer))
    [trajectory] = (await do_group_rollout(builder, sampler, seed=0)).trajectories_G
    assert [text_of(message) for message in echo.heard] == ["Hello"] * 3
    assert [turn.action.tokens for turn in trajectory.transitions] == [hello] * 3
    [datum] = assemble_trajectory(trajectory, [1.0] * 3)
    targets, mask = (datum.loss_fn_inputs[name].tolist() for name in ("target_tokens", "mask"))
    assert sum(mask) == 3 * (len(hello) - 1)
    assert not any(trained for token, trained in zip(targets, mask, strict=True) if token == end)


async def test_a_history_that_the_environment_rewrites_is_rendered_as_it_says(renderer: Renderer) -> None:
    echo = Echo(rewrites=True)
    env = EnvFromMessageEnv(echo, renderer)
    await env.initial_observation()
    result = await env.step(split_up(renderer, "Hello"))
    assert result.next_observation == renderer.build_generation_prompt(echo.messages)


@pytest.mark.parametrize("kind", ["cut", "end in the middle", "half a surrogate pair"])
async def test_a_malformed_response_ends_the_episode(renderer: Renderer, kind: str) -> None:
    # The last kind would otherwise fail in the next prompt: a model could crash a run by what it writes.
    end = cast("list[int]", renderer.get_stop_sequences())
    hello = renderer.encoder.encode(["Hello"])
    call: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}],
    }
    actions = {
        "cut": hello,
        "end in the middle": [*hello, *end, *hello],
        "half a surrogate pair": renderer.build_response([{"role": "user", "content": ""}, call]),
    }
    echo = Echo()
    env = EnvFromMessageEnv(echo, renderer, malformed_reward=-2.0)
    await env.initial_observation()
    result = await env.step(actions[kind])
    assert (result.reward, result.episode_done, result.metrics) == (-2.0, True, {"malformed": 1.0})
    assert echo.heard == []


async def test_messages_with_an_image_are_refused(tmp_path: Path) -> None:
    """Catches a prompt that a renderer with eyes writes, and that ends in an error of the SDK."""
    pillow = pytest.importorskip("PIL.Image", reason="needs the extra 'vision'")
    pillow.new("RGB", (64, 64)).save(tmp_path / "seen.png")
    environment = Echo()
    environment.messages[0]["content"] = [{"type": "image", "image": str(tmp_path / "seen.png")}]
    seeing = EnvFromMessageEnv(environment, get_renderer("qwen3_vl_instruct", every_tokenizer()))
    with pytest.raises(InputError, match="an observation holds an image, and rollouts are of text alone"):
        await seeing.initial_observation()
