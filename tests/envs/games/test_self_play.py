"""Races: rules, two players at a table, rewards of the group."""

import asyncio
import pickle
import random
from typing import Any

import pytest
from tests.envs.answers import TINY, answer_with, configured, tokens_of

from cookhouse.envs import Prompting, RaceGame, RaceGroupBuilder, RacePlayerEnv, SelfPlayConfig
from cookhouse.envs.games import self_play as module
from cookhouse.envs.games.self_play import GameTable, Race, perfect_bot, random_bot
from cookhouse.errors import InputError, ServiceError
from cookhouse.rl import RolloutStrategy, do_group_rollout, minimum_viable, retry
from cookhouse.rl.sampling.fake import FakeSampler

pytestmark = pytest.mark.anyio
RACE = Race(start=10, target=15, max_add=3)


def game(total: int = 10) -> RaceGame:
    return RaceGame(total=total, target=15, max_add=3, to_move=0)


@pytest.mark.parametrize(
    ("total", "text", "is_allowed", "winner"),
    [
        (10, "11", True, None),
        (10, " 13. ", True, None),
        (10, "14", False, 1),
        (10, "10", False, 1),
        (10, "twelve", False, 1),
        (10, "11 or 12", False, 1),
        (10, "", False, 1),
        (13, "15", True, 0),
        (13, "16", False, 1),
    ],
)
def test_the_rules(total: int, text: str, is_allowed: bool, winner: int | None) -> None:
    """Catches a move beyond the target, a move of nothing, and a loser who is rewarded."""
    played = game(total)
    assert (played.say(text), played.winner, played.to_move) == (is_allowed, winner, 1)


def test_the_question_names_what_is_allowed() -> None:
    """Catches a prompt that offers a move that loses by the rules."""
    assert game().question() == "Which number do you say: 11, 12 or 13?"
    assert game(13).question() == "Which number do you say: 14 or 15?"
    assert game(14).question() == "Do you say 15?"


def test_the_perfect_player_never_loses_a_won_position() -> None:
    """Catches a strategy that is off by one."""
    rng = random.Random(0)
    for _ in range(50):
        played = RaceGame(total=10, target=31, max_add=3, to_move=0)  # 10 is not 31 − 4k: the first player wins
        while not played.is_over:
            bot = perfect_bot if played.to_move == 0 else random_bot
            assert played.say(str(bot(played, rng)))
        assert played.winner == 0


async def play(env: RacePlayerEnv, prompting: Prompting, moves: list[str]) -> list[bool]:
    """Answer by the script until the episode is over; whether each move was the last."""
    await env.initial_observation()
    ends = []
    for move in moves:
        ends.append((await answer_with(env, prompting, move)).episode_done)
    return ends


async def test_two_players_move_in_two_games_in_turn(prompting: Prompting) -> None:
    """Catches players who wait for each other for ever, and a game that is scored for the wrong player."""
    [one, other] = await RaceGroupBuilder(race=RACE, prompting=prompting, group_size=2).make_envs()
    assert isinstance(one, RacePlayerEnv)
    assert isinstance(other, RacePlayerEnv)
    assert await one.initial_observation() == await other.initial_observation()
    async with asyncio.timeout(10):
        # Game 0: 12, 13, 15 (player 0 wins). Game 1: 11, 14, 15 (player 1 wins).
        ends = await asyncio.gather(
            play(one, prompting, ["12", "14", "15"]), play(other, prompting, ["11", "13", "15"])
        )
    assert [end[-1] for end in ends] == [True, True]
    assert (one.score, other.score) == (0.0, 0.0)


async def test_an_illegal_move_loses_the_game_and_the_other_goes_on(prompting: Prompting) -> None:
    """Catches an exception for what the model wrote, and a table that stops with its first game."""
    builder = RaceGroupBuilder(race=RACE, prompting=prompting, group_size=2)
    [one, other] = await builder.make_envs()
    assert isinstance(one, RacePlayerEnv)
    assert isinstance(other, RacePlayerEnv)
    async with asyncio.timeout(10):
        # Player 0 loses game 0 at once; game 1: 12, 13, 15.
        await asyncio.gather(play(one, prompting, ["what?", "13"]), play(other, prompting, ["12", "15"]))
    assert (one.score, other.score) == (-1.0, 1.0)
    rewards = await builder.compute_group_rewards([], [one, other])
    assert rewards == [(-1.0, {"won": 0.0}), (1.0, {"won": 1.0})]


async def test_a_cut_move_is_no_move(prompting: Prompting) -> None:
    """Catches `1` of a `12` that was cut off counted as a move, or a table left waiting for it."""
    [env] = await RaceGroupBuilder(race=RACE, prompting=prompting, group_size=1, bot="random").make_envs()
    assert isinstance(env, RacePlayerEnv)
    result = await env.step(tokens_of(prompting.renderer, "12")[:-1])
    assert result.metrics == {"allowed": 0.0}


async def test_nobody_waits_for_ever(prompting: Prompting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that hangs because the rollout of the other player failed."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    env = RacePlayerEnv(GameTable(RACE), 0, prompting)
    with pytest.raises(ServiceError, match="the other player has not moved"):
        await answer_with(env, prompting, "12")


def offering(prompting: Prompting) -> Any:
    """Answers with any number that the prompt offers."""
    tokens = {number: tokens_of(prompting.renderer, str(number)) for number in range(10, 32)}

    def answer(prompt: Any, rng: Any) -> list[int]:
        offered = [n for n in tokens if f" {n}" in prompting.renderer.encoder.decode(prompt)]
        return tokens[int(rng.choice(offered))]

    return answer


async def test_a_group_plays_to_the_end_with_any_sampler() -> None:
    """Catches a deadlock between rollouts that run as they do in training; the builder is pickled on the way."""
    prompting = Prompting(model_name=TINY, renderer_name="human_ai")
    answer = offering(prompting)
    race = Race(start=10, target=31, max_add=3)
    builder = pickle.loads(pickle.dumps(RaceGroupBuilder(race=race, prompting=prompting, group_size=8)))
    sampler = FakeSampler(answer)
    async with asyncio.timeout(20):
        group = await do_group_rollout(builder, sampler, seed=1)
        again = await do_group_rollout(builder, FakeSampler(answer), seed=1)
    assert sum(group.get_total_rewards()) == 0.0
    assert sampler.requests[0].num_samples == 8
    assert group.get_total_rewards() == again.get_total_rewards()
    assert all(transition.metrics["allowed"] == 1.0 for t in group.trajectories_G for transition in t.transitions)


@pytest.mark.parametrize(("strategy", "num_players"), [(retry(2), 8), (minimum_viable(4), 6)])
async def test_a_rollout_that_fails_takes_its_table_with_it(
    prompting: Prompting, strategy: RolloutStrategy, num_players: int
) -> None:
    """Catches a second attempt at a table where nobody else sits, and a partner who waits for ten minutes."""

    async def gate(number: int) -> None:
        if number == 3:  # of some player's second move: the first one is asked for all at once
            raise ConnectionError("reset")

    race = Race(start=10, target=31, max_add=3)
    builder = RaceGroupBuilder(race=race, prompting=prompting, group_size=8)
    async with asyncio.timeout(20):
        group = await do_group_rollout(builder, FakeSampler(offering(prompting), gate=gate), seed=1, strategy=strategy)
    assert len(group.trajectories_G) == num_players
    assert sum(group.get_total_rewards()) == 0.0, "both players of a table, or none"
    assert sorted(failure.origin for failure in group.failures) == ["partner", "sampling"]


async def test_the_evaluation_is_against_a_scripted_player() -> None:
    """Catches an evaluation against itself, whose score is 0 whatever was learned."""
    settings = {"renderer_name": "human_ai", "batch_size": 4, "group_size": 4, "num_races": 20}
    train, test = await configured(SelfPlayConfig, **settings).build()
    assert (len(train), len(test.get_batch(0))) == (5, 7)
    assert train.get_batch(0)[0].logging_tags() == ["self_play"]
    assert test.get_batch(0)[0].logging_tags() == ["against_random"]
    [env, *_] = await test.get_batch(0)[0].make_envs()
    prompt, _ = await env.initial_observation()
    prompting = Prompting(model_name=TINY, renderer_name="human_ai")
    assert prompting.renderer.encoder.decode(prompt.to_ints()).startswith("System: We count up in turns")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_size": 3}, "group_size is 3; players sit in pairs"),
        ({"group_size": 0}, "group_size is 0"),
        ({"max_add": 1}, "max_add is 1"),
        ({"target": 24}, "target is 24; it must be at least 25"),
        ({"opponent": "perfct"}, "unknown opponent 'perfct'; did you mean perfect"),
    ],
)
async def test_an_impossible_race_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        await configured(SelfPlayConfig, **settings).build()
