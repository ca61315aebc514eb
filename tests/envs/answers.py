"""Configs for the embedded model, and answers as it would sample them."""

from typing import Any, TypeVar

from cookhouse.chat import Message, Renderer, TrainOnWhat
from cookhouse.envs import Prompting
from cookhouse.rl import Env, StepResult

TINY = "cookhouse/tiny"
T = TypeVar("T")


def configured(kind: type[T], **settings: Any) -> T:
    """A config for the embedded model. mypy does not see that `chz` makes a constructor."""
    return kind(**{"model_name": TINY, **settings})


def tokens_of(renderer: Renderer, text: str) -> list[int]:
    """An answer as sampled tokens, its end mark included."""
    messages: list[Message] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]
    tokens, weights = renderer.build_supervised_example(messages, TrainOnWhat.LAST_ASSISTANT_MESSAGE)
    return [token for token, weight in zip(tokens.to_ints(), weights, strict=True) if weight]


async def answer_with(env: Env, prompting: Prompting, text: str, *, is_cut: bool = False) -> StepResult:
    """The step of an answer; a cut one has lost its end mark."""
    tokens = tokens_of(prompting.renderer, text)
    return await env.step(tokens[:-1] if is_cut else tokens)
