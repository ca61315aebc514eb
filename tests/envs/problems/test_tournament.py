"""Tournaments: who meets whom, what an answer earns, and what becomes of a comparison that fails."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.envs.answers import TINY, answer_with, configured

from cookhouse.chat import Comparison, Message, text_of
from cookhouse.envs import (
    AnswerEnv,
    Prompting,
    SecondModels,
    TournamentConfig,
    TournamentGroupBuilder,
    TournamentPrompt,
)
from cookhouse.envs.problems.judge import SharedPreferenceModel
from cookhouse.envs.problems.tournament import meetings
from cookhouse.errors import BadRowsError, InputError, ServiceError
from cookhouse.grading import NamedGrader
from cookhouse.grading.preference_model import Judgment
from cookhouse.rl import GroupFailedError, NoopMessageCompleter, do_group_rollout
from cookhouse.rl.sampling.fake import FakeSampler

pytestmark = pytest.mark.anyio

PROMPTING = Prompting(model_name=TINY, renderer_name="human_ai")
PROMPT: list[Message] = [{"role": "user", "content": "Say it."}]


class LongerIsBetter:
    """Certain that the longer answer is better, by a tenth for each character, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, comparison: Comparison) -> Judgment:
        a, b = (text_of(said[0]) for said in (comparison.completion_a, comparison.completion_b))
        self.asked.append((a, b))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        score = (len(a) - len(b)) / 10
        return Judgment(
            a=(1 + score) / 2, b=(1 - score) / 2, tie=0.0, position_bias=0.5, is_order_dependent=len(a) == len(b)
        )


def group(model: Any, size: int, **settings: Any) -> TournamentGroupBuilder:
    prompt = TournamentPrompt(messages=PROMPT, references=settings.pop("references", ()))
    return TournamentGroupBuilder(prompt=prompt, prompting=PROMPTING, model=model, group_size=size, **settings)


async def rewarded(builder: TournamentGroupBuilder, answers: Sequence[str]) -> list[tuple[float, dict[str, float]]]:
    envs = await builder.make_envs()
    for env, answer in zip(envs, answers, strict=True):
        await answer_with(env, PROMPTING, answer)
    return [(reward, dict(metrics)) for reward, metrics in await builder.compute_group_rewards([], envs)]


async def test_an_answer_earns_its_wins_less_its_losses_by_the_number_of_its_pairs() -> None:
    # Catches wins that are not taken from the loser, and a sum in the place of a mean.
    model = LongerIsBetter()
    found = await rewarded(group(model, 3), ["a", "aaa", "aaaaaa"])
    assert [reward for reward, _ in found] == pytest.approx([(-0.2 - 0.5) / 2, (0.2 - 0.3) / 2, (0.5 + 0.3) / 2])
    assert sum(reward for reward, _ in found) == pytest.approx(0.0)
    assert found[0][1] == {"win_minus_loss": found[0][0], "order_disagreement": 0.0, "position_bias": 0.5}
    assert len(model.asked) == 3


async def test_equal_texts_are_asked_about_once_and_draw_with_each_other() -> None:
    model = LongerIsBetter()
    found = await rewarded(group(model, 4), ["aa", "b", "aa", "b"])
    assert len(model.asked) == 1
    assert [reward for reward, _ in found] == pytest.approx([0.2 / 3, -0.2 / 3] * 2)
    same = await rewarded(group(model, 2), ["aa", "aa"])
    assert same == [(0.0, {"win_minus_loss": 0.0})] * 2


async def test_an_empty_answer_loses_without_being_asked_about() -> None:
    model = LongerIsBetter()
    builder = group(model, 3)
    envs = await builder.make_envs()
    for env, text in zip(envs, ["", "a", ""], strict=True):
        assert isinstance(env, AnswerEnv)
        env.answer = text
    assert [reward for reward, _ in await builder.compute_group_rewards([], envs)] == [-0.5, 1.0, -0.5]
    assert model.asked == []


async def test_an_answer_without_its_end_loses_what_the_format_is_worth() -> None:
    env = AnswerEnv(TournamentPrompt(messages=PROMPT), PROMPTING, format_coef=0.5)
    cut = await answer_with(env, PROMPTING, "abc", is_cut=True)
    assert (cut.reward, cut.metrics["format"], env.answer) == (-0.5, 0.0, "abc")
    whole = await answer_with(
        AnswerEnv(TournamentPrompt(messages=PROMPT), PROMPTING, format_coef=0.5), PROMPTING, "abc"
    )
    assert (whole.reward, whole.metrics["format"]) == (0.0, 1.0)


@pytest.mark.parametrize(("num_answers", "num_rounds"), [(4, 1), (5, 2), (8, 3), (3, 5)])
def test_in_rounds_each_meets_at_least_so_many_and_nobody_itself_or_twice(num_answers: int, num_rounds: int) -> None:
    drawn = meetings(num_answers, num_rounds, random.Random(0))
    assert len(set(drawn)) == len(drawn) <= num_answers * num_rounds
    assert all(i < j for i, j in drawn)
    met = [sum(member in pair for pair in drawn) for member in range(num_answers)]
    assert min(met) >= min(num_rounds, num_answers - 1)


def test_all_pairs_are_all_pairs() -> None:
    assert meetings(3, None, random.Random(0)) == [(0, 1), (0, 2), (1, 2)]
    assert meetings(1, None, random.Random(0)) == []


async def test_a_held_out_answer_meets_the_two_of_its_row_and_the_rule() -> None:
    references = ("Could you please go?", "Go.")
    builder = group(LongerIsBetter(), 1, references=references, rule=NamedGrader("polite"))
    [(reward, metrics)] = await rewarded(builder, ["Could you please go now?"])
    scores = [(24 - 20) / 10, (24 - 3) / 10]
    assert reward == pytest.approx(sum(scores) / 2)
    assert metrics["win_share_chosen"] == pytest.approx((1 + scores[0]) / 2)
    assert metrics["win_share_rejected"] == pytest.approx((1 + scores[1]) / 2)
    assert metrics["win_share"] == pytest.approx((1 + reward) / 2)
    assert (metrics["rule"], metrics["agreement"]) == (0.0, 0.0)  # polite, and about something else
    [(_, right)] = await rewarded(builder, ["Could you please go?"])
    assert (right["rule"], right["agreement"]) == (1.0, 1.0)


async def test_a_failed_comparison_fails_the_group_and_is_no_zero() -> None:
    async def failing(_: Comparison) -> Judgment:
        raise ServiceError("the preference model is gone")

    def different(prompt: Sequence[int], rng: Any) -> Sequence[int]:  # noqa: ARG001
        return [int(rng.integers(300, 400)), int(rng.integers(300, 400)), 198]

    with pytest.raises(GroupFailedError, match="the preference model is gone") as failed:
        await do_group_rollout(group(failing, 4), FakeSampler(different), seed=0)
    assert failed.value.failures[-1].origin == "env"


async def test_a_run_asks_about_each_comparison_once_and_so_many_at_a_time_and_again_about_what_failed() -> None:
    model = LongerIsBetter()
    shared = SharedPreferenceModel(model, max_concurrent=2)
    texts = ["a" * length for length in range(1, 6)]
    pairs = [Comparison(prompt=PROMPT, completion_a=_said("x"), completion_b=_said(text)) for text in texts]
    first = await asyncio.gather(*(shared(pair) for pair in pairs))
    assert (len(model.asked), model.most_at_once) == (5, 2)
    assert await asyncio.gather(*(shared(pair) for pair in pairs)) == first
    assert len(model.asked) == 5

    is_gone = True

    async def failing_once(comparison: Comparison) -> Judgment:
        if is_gone:
            raise ServiceError("gone")
        return await model(comparison)

    again = SharedPreferenceModel(failing_once, max_concurrent=2)
    with pytest.raises(ServiceError, match="gone"):
        await again(pairs[0])
    is_gone = False
    assert await again(pairs[0]) == first[0]


async def nobody(name: str) -> Any:
    class Client:
        async def compute_logprobs(self, prompt: tinker.ModelInput) -> list[float | None]:
            return [None, *[-1.0] * (prompt.length - 1)]

        async def sample(self, *_: Any) -> Any:
            raise AssertionError(name)

    return Client()


async def test_bundled_prompts_are_trained_on_and_others_held_out_with_their_answers() -> None:
    config = configured(TournamentConfig, preference_model="pm", renderer_name="human_ai", batch_size=16, group_size=4)
    train, test = await config.build(nobody)
    assert test is not None
    assert (len(train), len(test.problems), len(train.problems)) == (63, 100, 1000)
    assert all(not prompt.references for prompt in train.problems)
    assert test.problems[0].references == ("Could you please paint the green gate?", "Paint the green gate.")
    assert not {str(prompt.messages) for prompt in train.problems} & {str(prompt.messages) for prompt in test.problems}


async def test_answers_are_compared_with_what_rows_say_behind_their_reasoning(tmp_path: Path) -> None:
    """Catches an answer without reasoning that is put beside one with it."""
    path = tmp_path / "test.jsonl"
    path.write_text('{"prompt": "2 + 3?", "chosen": "<think>so</think>\\n5", "rejected": "6"}\n')
    config = configured(TournamentConfig, preference_model="pm", renderer_name="qwen3", test_path=str(path))
    _, test = await config.build(nobody)
    assert test is not None
    assert test.problems[0].references == ("5", "6")


async def test_a_completer_of_the_run_compares_in_the_place_of_weights() -> None:
    others = SecondModels(nobody, lambda _: NoopMessageCompleter())
    config = configured(TournamentConfig, preference_model="gpt", renderer_name="human_ai", batch_size=4)
    train, _ = await config.build(others)
    [builder, *_] = train.get_batch(0)
    assert isinstance(builder, TournamentGroupBuilder)
    judged = await builder.model(Comparison(prompt=PROMPT, completion_a=_said("x"), completion_b=_said("y")))
    assert judged.a + judged.b == 1.0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "preference_model is not set, and something must compare answers; train one"),
        ({"preference_model": "pm", "rule": "polit"}, "unknown grader 'polit'; did you mean polite"),
    ],
)
async def test_a_config_that_cannot_be_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        await configured(TournamentConfig, renderer_name="human_ai", **settings).build(nobody)


async def test_held_out_rows_need_two_answers(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Say it."}\n')
    config = configured(
        TournamentConfig, preference_model="pm", renderer_name="human_ai", dataset_path=str(path), test_path=str(path)
    )
    with pytest.raises(BadRowsError, match="a comparison needs completion_a and completion_b"):
        await config.build(nobody)


def _said(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]
