"""Any game of the library `textarena`: the model plays one seat, and a second model or a script the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import chz

from cookhouse.chat import Message, text_of
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import no_group_rewards
from cookhouse.envs.prompting import Prompting
from cookhouse.envs.second_model import OpenSampler, SecondModelSpec
from cookhouse.errors import InputError
from cookhouse.extras import install_command
from cookhouse.rl import (
    Env,
    EnvFromMessageEnv,
    MessageCompleter,
    MessageStepResult,
    Metrics,
    RenderedMessageCompleter,
    Trajectory,
)

MakeGame = Callable[[str], Any]
"""As `textarena.make`."""

_OPPONENT_TOKENS = 512
_MALFORMED_REWARD = -1.0
_MAX_PLAYERS = 16
_TEST_SEEDS = 1_000_000
"""Games to evaluate on have seeds from here on."""


def make_textarena_game(env_id: str) -> Any:
    """A game by its id, such as `TicTacToe-v0`. Raises `InputError` without the library, or for an unknown id."""
    try:
        import textarena
    except ImportError as error:
        raise InputError(f"TextArena games need the library textarena: {install_command('textarena')}") from error
    try:
        return textarena.make(env_id=env_id)
    except ValueError as error:
        raise InputError(f"{env_id!r} is no game of textarena: {error}") from error


class TextArenaEnv:
    """One seat of one game, an environment of messages.

    The reward at the end is the game's own for that seat, from −1 to 1 in most games. A conversation is what the seat
    has seen and said. The library asks each player in turn; the other seats are answered by `opponent`.
    """

    def __init__(
        self,
        game: Any,
        prompting: Prompting,
        *,
        seat: int,
        num_players: int,
        seed: int,
        opponent: MessageCompleter | None,
    ) -> None:
        self._game = game
        self._prompting = prompting
        self._seat = seat
        self._num_players = num_players
        self._seed = seed
        self._opponent = opponent
        self._seen: dict[int, list[Message]] = {}

    async def initial_observation(self) -> Sequence[Message]:
        # The library seeds the module `random` here, and games draw from it: a game of chance depends on what else
        # draws from it, the start of a game does not.
        self._game.reset(num_players=self._num_players, seed=self._seed)
        if await self._play_others():
            raise InputError("the game was over before the model's first turn; choose another game or seat")
        return self._seen[self._seat]

    async def step(self, message: Message) -> MessageStepResult:
        said = text_of(message)
        self._seen[self._seat] = [*self._seen[self._seat], message]
        is_over = self._act(said) or await self._play_others()
        if not is_over:
            return MessageStepResult(
                reward=0.0, episode_done=False, next_messages=self._seen[self._seat], logs={"said": said}
            )
        rewards, info = self._game.close()
        is_invalid = bool(((info or {}).get(self._seat) or {}).get("invalid_move"))
        return MessageStepResult(
            reward=float((rewards or {}).get(self._seat, 0.0)),
            episode_done=True,
            metrics={"invalid_move": float(is_invalid)},
            logs={"said": said, "outcome": str((info or {}).get(self._seat, ""))},
        )

    def _act(self, text: str) -> bool:
        is_over, _ = self._game.step(action=text)
        return bool(is_over)

    async def _play_others(self) -> bool:
        """Play until it is the model's turn; whether the game is over."""
        while True:
            player, observation = self._game.get_observation()
            self._hear(player, observation)
            if player == self._seat:
                return False
            assert self._opponent is not None
            reply = await self._opponent(self._seen[player])
            self._seen[player] = [*self._seen[player], reply]
            if self._act(text_of(reply)):
                return True

    def _hear(self, player: int, observation: Any) -> None:
        """Observations are text, or, from games without a wrapper, tuples of sender, text and kind."""
        parts = [observation] if isinstance(observation, str) else [str(part[1]) for part in observation]
        text = "\n".join(parts)
        if player not in self._seen:
            self._seen[player] = self._prompting.ask(text)
        else:
            self._seen[player] = [*self._seen[player], {"role": "user", "content": text}]


@dataclass(frozen=True, kw_only=True)
class TextArenaGroupBuilder:
    """`group_size` games from one seed; the model's seat goes round, so that each is played as often as can be."""

    env_id: str
    seed: int
    num_players: int
    group_size: int
    prompting: Prompting
    opponent: MessageCompleter | None = None
    make_game: MakeGame = make_textarena_game

    async def make_envs(self) -> Sequence[Env]:
        return [self._make_env(index % self.num_players) for index in range(self.group_size)]

    async def compute_group_rewards(
        self,
        trajectories_G: Sequence[Trajectory],
        envs_G: Sequence[Env],  # noqa: ARG002
    ) -> Sequence[tuple[float, Metrics]]:
        return no_group_rewards(len(trajectories_G))

    def logging_tags(self) -> Sequence[str]:
        return [self.env_id]

    def _make_env(self, seat: int) -> Env:
        env = TextArenaEnv(
            self.make_game(self.env_id),
            self.prompting,
            seat=seat,
            num_players=self.num_players,
            seed=self.seed,
            opponent=self.opponent,
        )
        return EnvFromMessageEnv(env, self.prompting.renderer, malformed_reward=_MALFORMED_REWARD)


@chz.chz
class TextArenaConfig(EnvConfig):
    """Games of one kind, each from a seed of its own."""

    has_tools = False
    unread = frozenset({"format_coef"})

    env_id: str = chz.field(default="GuessTheNumber-v0", doc="The game, as textarena names it.")
    num_players: int = chz.field(default=1, doc="Seats; the model takes one.")
    opponent_model: str | None = chz.field(default=None, doc="Model that takes the other seats, if there are any.")
    opponent_renderer: str | None = chz.field(
        default=None,
        doc="Its chat format; default: that of the run that trained it, else the model's own, with thinking off where "
        "its family has a way.",
    )
    opponent_max_tokens: int | None = chz.field(
        default=None, doc="Tokens of its moves; default: 512, and 2048 more where it thinks."
    )
    num_games: int = chz.field(default=1024, doc="Games in an epoch.")
    num_test_games: int = chz.field(default=64, doc="Games to evaluate on.")

    async def build(self, open_sampler: OpenSampler | None = None) -> tuple[GroupDataset[int], GroupDataset[int]]:
        """Seeds of games to train and to evaluate on.

        Raises:
            InputError: the library or the game is missing, or seats are left without a player.
        """
        if not 1 <= self.num_players <= _MAX_PLAYERS:
            raise InputError(f"num_players is {self.num_players}; it must be from 1 to {_MAX_PLAYERS}")
        make_textarena_game(self.env_id)  # a missing library or game is found before the run starts
        opponent = await self._open_opponent(open_sampler) if self.num_players > 1 else None
        return (
            self.train_set(range(self.num_games), partial(self._group, opponent, self.group_size)),
            self.test_set(
                range(_TEST_SEEDS, _TEST_SEEDS + self.num_test_games), partial(self._group, opponent, self.num_players)
            ),
        )

    def _group(self, opponent: MessageCompleter | None, group_size: int, seed: int) -> TextArenaGroupBuilder:
        return TextArenaGroupBuilder(
            env_id=self.env_id,
            seed=seed,
            num_players=self.num_players,
            group_size=group_size,
            prompting=self.prompting,
            opponent=opponent,
        )

    async def _open_opponent(self, open_sampler: OpenSampler | None) -> MessageCompleter:
        if self.opponent_model is None or open_sampler is None:
            raise InputError(
                f"{self.env_id} has {self.num_players} seats, and opponent_model is {self.opponent_model!r}: name a "
                "model that takes the others, and run with a service to sample from it"
            )
        spec = SecondModelSpec(
            model_name=self.opponent_model,
            trained_model=self.model_name,
            renderer_name=self.opponent_renderer,
            force_renderer=self.force_renderer,
            max_tokens=self.opponent_max_tokens,
            answer_tokens=_OPPONENT_TOKENS,
        )
        return spec.completer_of(open_sampler) or RenderedMessageCompleter(*await spec.open(open_sampler))
