"""The adapter for games of `textarena`, over a fake of the library."""

import pickle
import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest
from tests.envs.answers import answer_with, configured

from cookhouse.chat import Message
from cookhouse.envs import Prompting, TextArenaConfig, TextArenaGroupBuilder
from cookhouse.envs.libraries.textarena import TextArenaEnv, make_textarena_game
from cookhouse.errors import InputError

pytestmark = pytest.mark.anyio


class Counting:
    """Players in turn say the next number, from 1 to 4; who says another has lost. As the library's games behave."""

    def reset(self, num_players: int, seed: int | None = None) -> None:
        self.num_players, self.seed = num_players, seed
        self.count, self.player = 0, 0
        self.rewards: dict[int, int] | None = None
        self.info: dict[int, dict[str, Any]] = {p: {"invalid_move": False} for p in range(num_players)}

    def get_observation(self) -> tuple[int, str]:
        return self.player, f"[GAME] after {self.count}"

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        self.count += 1
        is_wrong = action != str(self.count)
        if is_wrong or self.count == 4:
            self.rewards = {p: -1 if is_wrong == (p == self.player) else 1 for p in range(self.num_players)}
            self.info[self.player]["invalid_move"] = is_wrong
            return True, {}
        self.player = (self.player + 1) % self.num_players
        return False, {}

    def close(self) -> tuple[dict[int, int] | None, dict[int, dict[str, Any]]]:
        return self.rewards, self.info


class Opponent:
    """Says the numbers of its own turns, whatever it hears."""

    def __init__(self, *says: str) -> None:
        self.says = list(says)
        self.heard: list[Sequence[Message]] = []

    async def __call__(self, messages: Sequence[Message]) -> Message:
        self.heard.append(list(messages))
        return {"role": "assistant", "content": self.says.pop(0)}


def make_counting(env_id: str) -> Any:
    assert env_id == "Counting-v0"
    return Counting()


def say(text: str) -> Message:
    return {"role": "assistant", "content": text}


async def test_the_model_takes_one_seat_and_the_opponent_the_other(chat: Prompting) -> None:
    """Catches observations given to the wrong player, and the reward of another seat."""
    opponent = Opponent("2", "4")
    env = TextArenaEnv(Counting(), chat, seat=0, num_players=2, seed=7, opponent=opponent)
    assert await env.initial_observation() == [{"role": "user", "content": "[GAME] after 0"}]
    result = await env.step(say("1"))
    assert [m["content"] for m in result.next_messages] == ["[GAME] after 0", "1", "[GAME] after 2"]
    last = await env.step(say("3"))
    assert (last.reward, last.episode_done, last.metrics) == (-1.0, True, {"invalid_move": 0.0})
    assert [m["content"] for m in opponent.heard[1]] == ["[GAME] after 1", "2", "[GAME] after 3"]


async def test_the_second_seat_waits_for_the_first(chat: Prompting) -> None:
    """Catches a model that moves out of turn."""
    env = TextArenaEnv(Counting(), chat, seat=1, num_players=2, seed=7, opponent=Opponent("1", "3"))
    assert await env.initial_observation() == [{"role": "user", "content": "[GAME] after 1"}]
    assert not (await env.step(say("2"))).episode_done
    assert (await env.step(say("4"))).reward == 1.0


async def test_an_invalid_move_is_a_reward(chat: Prompting) -> None:
    """Catches output that raises, or that is taken as a draw."""
    env = TextArenaEnv(Counting(), chat, seat=0, num_players=2, seed=7, opponent=Opponent())
    await env.initial_observation()
    result = await env.step(say("x"))
    assert (result.reward, result.metrics) == (-1.0, {"invalid_move": 1.0})


async def test_seats_go_round_and_games_are_seeded(chat: Prompting) -> None:
    """Catches a group that learns one seat only, and games of a group that differ."""
    builder = TextArenaGroupBuilder(
        env_id="Counting-v0",
        seed=7,
        num_players=2,
        group_size=3,
        prompting=chat,
        opponent=Opponent("1", "2", "3"),
        make_game=make_counting,
    )
    envs = await pickle.loads(pickle.dumps(builder)).make_envs()
    prompts = [(await env.initial_observation())[0] for env in envs]
    assert prompts[0] == prompts[2] != prompts[1]
    cut = await answer_with(envs[0], chat, "1", is_cut=True)
    assert (cut.reward, cut.episode_done) == (-1.0, True)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(env_id: str) -> Any:
        if env_id != "Counting-v0":
            raise ValueError(f"Environment {env_id} not found in registry.")
        return Counting()

    library = types.ModuleType("textarena")
    library.make = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "textarena", library)


async def test_games_to_train_and_to_evaluate_on_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an evaluation on games that were trained on."""
    install(monkeypatch)
    settings = {"renderer_name": "qwen3_instruct", "batch_size": 4, "group_size": 2, "num_games": 8}
    train, test = await configured(TextArenaConfig, env_id="Counting-v0", **settings).build()
    assert (len(train), len(test.get_batch(0))) == (2, 64)
    assert not set(train.problems) & set(test.problems)
    with pytest.raises(InputError, match="opponent_model is None: name a model that takes the others"):
        await configured(TextArenaConfig, env_id="Counting-v0", num_players=2, **settings).build()
    with pytest.raises(InputError, match="num_players is 0"):
        await configured(TextArenaConfig, env_id="Counting-v0", num_players=0, **settings).build()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(InputError, match=r"'Chess' is no game of textarena"):
        make_textarena_game("Chess")
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(InputError, match=r"install .*\[textarena\]"):
        make_textarena_game("Chess")
