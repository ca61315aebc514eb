"""A model that answers: what it asks its service, in one piece or in several."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.assets import TINY_MODEL
from cookhouse.chat import Message, Renderer, get_renderer
from cookhouse.cli.sampling_options import note_of
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.service.sampling.chat_model import ChatModel, SamplingOptions
from cookhouse.service.sampling.target import Target
from cookhouse.training import FakeService

DRAW = SamplingOptions(max_tokens=100, temperature=0.0, top_p=1.0, seed=7)
TARGET = Target(model_name=TINY_MODEL, sampler_path=None, renderer_name=None, state_dir=None)
ASKED: list[Message] = [{"role": "user", "content": "Why?"}]
LONG = "Because the water, which is wet, runs down the hill and not up, as everyone knows who has seen one. 日本"


def renderer() -> Renderer:
    return get_renderer("qwen3_instruct", get_tokenizer(TINY_MODEL))


class Saying(FakeService):
    """Says a text, going on where the prompt ends in a part of it."""

    def __init__(self, text: str = LONG, **options: Any) -> None:
        self.prompts: list[list[int]] = []
        found = renderer()
        begun = found.build_generation_prompt(ASKED).length
        whole = [*found.encoder.encode_with_specials(text + "<|im_end|>")]

        def answer(theta: Any, prompt_T: Sequence[int], chance: np.random.Generator) -> Sequence[int]:
            del theta, chance
            self.prompts.append(list(prompt_T))
            said = list(prompt_T[begun:])
            assert whole[: len(said)] == said
            return whole[len(said) :]

        super().__init__(answer=answer, **options)


async def ask(service: FakeService, draw: SamplingOptions = DRAW, *, is_streamed: bool = True) -> tuple[Any, list[str]]:
    target = replace(TARGET, renderer_name="qwen3_instruct")
    chat_model = await ChatModel.open(service, target, draw, is_streamed=is_streamed)
    shown: list[str] = []
    answer = await chat_model.answer(ASKED, lambda delta: shown.append(delta["text"]))  # type: ignore[typeddict-item]
    return answer, shown


@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_answer_in_pieces_is_the_answer_in_one(is_streamed: bool) -> None:
    # Catches a token lost or said twice between two requests, and half a character that is shown.
    service = Saying()
    answer, shown = asyncio.run(ask(service, is_streamed=is_streamed))
    assert answer.text == "".join(shown) == LONG
    assert answer.note is None
    assert (len(service.prompts) > 1, len(shown) > 1) == (is_streamed, is_streamed)


def test_a_stop_that_is_text_is_asked_for_in_one_piece() -> None:
    service = FakeService()
    chat_model = asyncio.run(
        ChatModel.open(service, replace(TARGET, renderer_name="role_colon"), DRAW, is_streamed=True)
    )
    shown: list[Any] = []
    asyncio.run(chat_model.answer(ASKED, shown.append))
    assert sum(call.kind == "sample" for call in service.calls) == 2  # submitted and finished


@pytest.mark.parametrize(
    ("context", "most", "note", "flag"),
    [
        (None, 5, "the answer is cut at 5 tokens", " (--max-tokens)"),
        (30, 5, "the answer is cut at 5 tokens", " (--max-tokens)"),
        (30, 100, "the context of 30 tokens is full", ""),
    ],
)
def test_what_is_cut_is_said(context: int | None, most: int, note: str, flag: str) -> None:
    answer, _ = asyncio.run(ask(Saying(max_context_tokens=context), replace(DRAW, max_tokens=most)))
    assert answer.note.endswith(note)
    assert note_of(answer) == answer.note + flag
    assert LONG.startswith(answer.text)


def test_a_conversation_that_fills_the_context_is_refused_before_it_is_sent() -> None:
    service = Saying(max_context_tokens=4)
    with pytest.raises(InputError, match=r"the conversation has \d+ tokens, and cookhouse/tiny takes 4"):
        asyncio.run(ask(service))
    assert not service.prompts


def test_drawing_again_with_a_seed_is_another_draw() -> None:
    # Catches /again that gives the same answer for ever.
    seeds: list[int | None] = []

    class Recording:
        def sample(self, prompt: Any, num_samples: int, sampling_params: tinker.SamplingParams) -> Any:
            seeds.append(sampling_params.seed)
            return chat_model.client.sample(prompt, num_samples, sampling_params)

    chat_model = asyncio.run(ChatModel.open(FakeService(), TARGET, DRAW, is_streamed=False))
    for attempt in range(2):
        asyncio.run(replace(chat_model, client=Recording()).answer(ASKED, attempt=attempt))
    assert seeds == [7, 8]


def test_the_pieces_of_an_answer_come_with_their_logprobs() -> None:
    # Catches logprobs that are lost between requests, or stand at other tokens.
    chat_model = asyncio.run(
        ChatModel.open(Saying(), replace(TARGET, renderer_name="qwen3_instruct"), DRAW, is_streamed=True)
    )

    async def collected() -> list[Any]:
        prompt = chat_model.renderer.build_generation_prompt(ASKED)
        stops = chat_model.renderer.get_stop_sequences()
        return [piece async for piece in chat_model.sampled(prompt, stops, seed=1)]

    pieces = asyncio.run(collected())
    assert len(pieces) > 1
    assert all(len(piece.logprobs) == len(piece.tokens) for piece in pieces)
