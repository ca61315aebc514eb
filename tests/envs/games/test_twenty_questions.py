"""Twenty questions: guesses, answers, and the end of a game."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from tests.envs.answers import TINY, answer_with, configured

from cookhouse.chat import Message, Renderer
from cookhouse.envs import GroupDataset, Prompting, Secret, TwentyQuestionsConfig, TwentyQuestionsEnv, TwoModelBuilder
from cookhouse.envs.games.twenty_questions import ModelAnswerer, NumberAnswerer
from cookhouse.envs.second_model import SecondModelSpec
from cookhouse.errors import InputError
from cookhouse.rl import StopCondition, TokensWithLogprobs

pytestmark = pytest.mark.anyio


def say(text: str) -> Message:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("owl", True),
        ("Owl.", True),
        ("Is it an owl?", True),
        ("Guess: the owl!", True),
        ("It's an OWL", True),
        ("'owl'", True),
        ("bowl", False),
        ("Is it an owl or a cat?", False),
        ("cat, dog, owl", False),
        ("", False),
    ],
)
def test_a_guess_is_the_word_alone(text: str, is_right: bool) -> None:
    """Catches a win by listing every word, and a right guess that is missed for its form."""
    assert Secret(word="owl").is_named_by(text) is is_right


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Is it larger than 40?", "Yes."),
        ("Is it less than 40?", "No."),
        ("more than 47", "No."),
        ("35", "Not 35."),
        ("35 or 36", "No."),
        ("def f(x): return x", "No."),
        ("9" * 5000, "No."),
        ("", "No."),
    ],
)
async def test_rules_answer_truly(question: str, answer: str) -> None:
    """Catches a comparison the wrong way around, and output that raises."""
    assert (await NumberAnswerer()("47", question)).text == answer


async def test_a_game_names_what_is_left_and_ends_with_the_right_guess(prompting: Prompting) -> None:
    """Catches candidates that an answer ruled out and that are named again, and a reward before the end."""
    secret = Secret(word="47", candidates=("12", "35", "47", "81"))
    env = TwentyQuestionsEnv(secret, NumberAnswerer(), prompting)
    assert await env.initial_observation() == [{"role": "user", "content": "Which number is it: 12, 35, 47 or 81?"}]
    first = await env.step(say("35"))
    assert (first.reward, first.episode_done) == (0.0, False)
    assert first.next_messages[-1]["content"] == "Not 35. Which number is it: 12, 47 or 81?"
    second = await env.step(say("Is it larger than 20?"))
    assert second.next_messages[-1]["content"] == "Yes. Which number is it: 47 or 81?"
    third = await env.step(say("less than 50"))
    assert third.next_messages[-1]["content"] == "Yes. Is it 47?"
    assert len(third.next_messages) == 7
    last = await env.step(say("47"))
    assert (last.reward, last.episode_done) == (1.0, True)


async def test_the_last_turn_ends_the_game(prompting: Prompting) -> None:
    """Catches a game of one turn more or less than the rules say."""
    env = TwentyQuestionsEnv(Secret(word="47", candidates=("12", "47")), NumberAnswerer(), prompting, max_turns=2)
    assert not (await env.step(say("12"))).episode_done
    last = await env.step(say("12"))
    assert (last.reward, last.episode_done) == (0.0, True)


class Scripted:
    """A second model that says the same whatever it is asked."""

    def __init__(self, renderer: Renderer, text: str) -> None:
        self._renderer = renderer
        self._text = text
        self.asked = ""

    async def __call__(self, prompt: tinker.ModelInput, stop: StopCondition) -> TokensWithLogprobs:
        assert stop == self._renderer.get_stop_sequences()
        self.asked = self._renderer.encoder.decode(prompt.to_ints())
        tokens = self._renderer.encoder.encode_with_specials(self._text)
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=None)


@pytest.mark.parametrize(
    ("text", "answer", "empty", "cut"),
    [
        ("Yes, it does.<|im_end|>", "Yes.", 0, 0),
        ("Well, no<|im_end|>", "No.", 0, 0),
        ("maybe<|im_end|>", "I cannot answer that.", 0, 0),
        ("<think>\nNo owl is a bear, but\n</think>\n\nYes.<|im_end|>", "Yes.", 0, 0),
        ("<think>\nThe owl flies, so yes", "I cannot answer that.", 1, 1),
        ("<think>\nyes\n</think>\n\n<|im_end|>", "I cannot answer that.", 1, 0),
        ("Yes, because owls", "Yes.", 0, 1),
        ("<|im_end|>", "I cannot answer that.", 1, 0),
    ],
)
async def test_a_model_answers_no_more_than_yes_or_no(text: str, answer: str, empty: int, cut: int) -> None:
    """Catches an answerer that tells the secret or is not told it, and a thought that is taken for the answer."""
    renderer = Prompting(model_name=TINY, renderer_name="qwen3").renderer
    completer = Scripted(renderer, text)
    reply = await ModelAnswerer(completer=completer, renderer=renderer)("owl", "Does it fly?")
    assert reply.text == answer
    undecided = float(answer == "I cannot answer that.")
    assert reply.metrics == {"answerer/empty": empty, "answerer/cut": cut, "answerer/undecided": undecided}
    assert "owl" in completer.asked
    assert "Does it fly?" in completer.asked


async def test_games_of_numbers_are_groups_that_can_be_pickled() -> None:
    """Catches test games that are in the training set, and environments that share a game."""
    config = configured(TwentyQuestionsConfig, renderer_name="human_ai", batch_size=4, group_size=2, num_turns=4)
    train, test = await config.build()
    assert (len(train), len(test.get_batch(0))) == (200, 100)
    assert not {frozenset(s.candidates) for s in train.problems} & {frozenset(s.candidates) for s in test.problems}
    builder = pickle.loads(pickle.dumps(train.get_batch(0)[0]))
    one, other = await builder.make_envs()
    assert await one.initial_observation() == await other.initial_observation()
    prompting = Prompting(model_name=TINY, renderer_name="human_ai")
    assert not (await answer_with(one, prompting, "x")).episode_done
    cut = await answer_with(other, prompting, "12", is_cut=True)
    assert (cut.reward, cut.episode_done) == (0.0, True)


class Client:
    """Samples what it is told, up to the limit."""

    def __init__(self, text: str = " Yes\n") -> None:
        self._tokens = Prompting(model_name=TINY).renderer.encoder.encode_with_specials(text)
        self.max_tokens = 0

    async def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        assert (num_samples, sampling_params.temperature, prompt.length > 0) == (1, 0.0, True)
        assert sampling_params.max_tokens is not None
        self.max_tokens = sampling_params.max_tokens
        tokens = self._tokens[: self.max_tokens]
        sequence = tinker.SampledSequence(stop_reason="stop", sequence_id="0", tokens_np=np.array(tokens))
        return tinker.SampleResponse(sequences=[sequence])


async def test_a_second_model_answers_about_words(tmp_path: Path) -> None:
    """Catches an answerer that is not opened, and words to test on that are trained on."""
    opened: list[str] = []

    async def open_sampler(model: str) -> Any:
        opened.append(model)
        return Client()

    path = tmp_path / "words.jsonl"
    path.write_text("\n".join(json.dumps({"word": word}) for word in ("a", "b", "c", "d", "e", "f")))
    settings = {"renderer_name": "human_ai", "answerer_model": TINY, "answerer_renderer": "human_ai", "batch_size": 1}
    config = configured(TwentyQuestionsConfig, words_path=str(path), **settings)
    train, test = await TwoModelBuilder(config=config, open_sampler=open_sampler).build()
    assert isinstance(train, GroupDataset)
    assert isinstance(test, GroupDataset)
    assert opened == [TINY]
    assert ([s.word for s in train.problems], [s.word for s in test.problems]) == (["a", "b", "c", "d", "f"], ["e"])
    [env] = await test.get_batch(0)[0].make_envs()
    prompt, _ = await env.initial_observation()
    prompting = Prompting(model_name=TINY, renderer_name="human_ai")
    assert "You have 20 turns" in prompting.renderer.encoder.decode(prompt.to_ints())
    result = await answer_with(env, prompting, "Is it alive?")
    assert prompting.renderer.encoder.decode(result.next_observation.to_ints()).endswith("Human: Yes.\nAI:")
    with pytest.raises(InputError, match="there is no service to sample from it"):
        await config.build()


@pytest.mark.parametrize("recorded", [{"model_name": TINY, "renderer_name": "human_ai"}, None])
async def test_a_second_model_may_be_named_as_any_weights_are(tmp_path: Path, recorded: dict[str, str] | None) -> None:
    """Catches weights of a run asked in another chat format than its own, or refused by name."""
    opened: list[str] = []

    async def open_sampler(model: str) -> Any:
        opened.append(model)
        return Client()

    name = "tinker://elsewhere/sampler_weights/final"
    if recorded is not None:
        name = str(tmp_path / "first")
        (tmp_path / "first").mkdir()
        (tmp_path / "first" / "run.json").write_text("{}")
        (tmp_path / "first" / "config.json").write_text(json.dumps({"recipe": "supervised", "config": recorded}))
    spec = SecondModelSpec(model_name=name, trained_model=TINY, answer_tokens=4)
    _, renderer = await spec.open(open_sampler)
    assert opened == [name]
    whole = renderer.encoder.decode(renderer.build_generation_prompt([{"role": "user", "content": "hi"}]).to_ints())
    assert ("Human: hi" in whole) == (recorded is not None)


_THOUGHTS = "<think>\n" + "An owl is a bird. " * 100 + "\n</think>\n\nYes.<|im_end|>"


@pytest.mark.parametrize(
    ("settings", "max_tokens", "answer", "metrics"),
    [
        ({"answerer_renderer": "qwen3"}, 2112, "Yes.", (0.0, 0.0)),
        ({"answerer_renderer": "qwen3", "answerer_max_tokens": 64}, 64, "I cannot answer that.", (1.0, 1.0)),
        ({"answerer_renderer": "qwen3_disable_thinking"}, 64, "I cannot answer that.", (1.0, 1.0)),
        ({}, 64, "I cannot answer that.", (0.0, 1.0)),
    ],
)
async def test_an_answerer_that_thinks_has_room_to(
    settings: dict[str, Any], max_tokens: int, answer: str, metrics: tuple[float, float]
) -> None:
    """Catches a game in which every question gets no answer, and nobody learns why."""
    client = Client(_THOUGHTS)

    async def open_sampler(_: str) -> Any:
        return client

    config = configured(TwentyQuestionsConfig, renderer_name="human_ai", answerer_model=TINY, batch_size=1, **settings)
    _, test = await TwoModelBuilder(config=config, open_sampler=open_sampler).build()
    assert test is not None
    [env] = await test.get_batch(0)[0].make_envs()
    await env.initial_observation()
    result = await answer_with(env, Prompting(model_name=TINY, renderer_name="human_ai"), "Does it fly?")
    assert client.max_tokens == max_tokens
    assert result.logs["answer"] == answer
    assert (result.metrics["answerer/empty"], result.metrics["answerer/cut"]) == metrics


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"num_turns": 0}, "num_turns is 0"), ({"num_candidates": 1}, "num_candidates is 1; it must be from 2 to 20")],
)
async def test_an_impossible_game_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        await configured(TwentyQuestionsConfig, **settings).build()
