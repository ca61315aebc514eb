"""Self-play: the model races against itself, and the group is rewarded by who won.

Two players share a table of two games and open one each, so that neither has the advantage of the first move, and so
that every player of a group starts with the same prompt. A player moves in the two games in turn.

    player 0   moves in game 0 ── waits for game 1 ─► moves in game 1 ── waits for game 0 ─► …
    player 1   moves in game 1 ── waits for game 0 ─► moves in game 0 ── waits for game 1 ─► …

A move wakes the other player. Nobody waits for a game that is over, nor longer than `PATIENCE_SECONDS`. If the rollout
of one player fails, the table is given up, and both may be attempted again at a new one.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import chz
import tinker

from cookhouse.chat import Termination, text_of
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.prompting import Prompting
from cookhouse.errors import InputError, ServiceError, UnknownNameError
from cookhouse.rl import Env, Metrics, StepResult, StopCondition, Trajectory

Bot = Callable[["RaceGame", random.Random], int]
"""A scripted player: the number it says."""


@dataclass(kw_only=True)
class RaceGame:
    """One game, changed by its moves. Players are 0 and 1; whoever says a number that is not allowed has lost."""

    total: int
    target: int
    max_add: int
    to_move: int
    winner: int | None = None

    @property
    def is_over(self) -> bool:
        return self.winner is not None

    @property
    def allowed(self) -> Sequence[int]:
        """Numbers that may be said next."""
        return range(self.total + 1, min(self.total + self.max_add, self.target) + 1)

    def question(self) -> str:
        """The position, as the player to move is asked."""
        *others, last = map(str, self.allowed)
        return f"Which number do you say: {', '.join(others)} or {last}?" if others else f"Do you say {last}?"

    def say(self, text: str) -> bool:
        """Move by what the player says, and return whether it was allowed."""
        number = text.strip().rstrip(".!")
        is_allowed = number in map(str, self.allowed)
        if is_allowed:
            self.total = int(number)
        if not is_allowed:
            self.winner = 1 - self.to_move
        elif self.total == self.target:
            self.winner = self.to_move
        self.to_move = 1 - self.to_move
        return is_allowed


def random_bot(game: RaceGame, rng: random.Random) -> int:
    """Says any number that is allowed."""
    return rng.choice(game.allowed)


def perfect_bot(game: RaceGame, rng: random.Random) -> int:
    """Wins wherever the position can be won; otherwise as `random_bot`."""
    winning = [number for number in game.allowed if (game.target - number) % (game.max_add + 1) == 0]
    return winning[0] if winning else random_bot(game, rng)


BOTS: dict[str, Bot] = {"perfect": perfect_bot, "random": random_bot}


PATIENCE_SECONDS = 600.0
_SHORTEST_RACE = 5
RULES = (
    "We count up in turns, and each number is at most {max_add} above the one before. Whoever says {target} wins. "
    "Answer with the number you say, alone."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Start of a group's games."""

    start: int
    target: int
    max_add: int

    def games(self) -> tuple[RaceGame, RaceGame]:
        """Two games, the first opened by player 0 and the second by player 1."""
        return (self._game(0), self._game(1))

    def _game(self, opener: int) -> RaceGame:
        return RaceGame(total=self.start, target=self.target, max_add=self.max_add, to_move=opener)


class GameTable:
    """Two games between two players. With a bot, player 1 is the bot and moves at once."""

    def __init__(self, race: Race, bot: Bot | None = None, seed: str = "") -> None:
        self.games = race.games()
        self._moved = asyncio.Condition()
        self._bot = bot
        self._rng = random.Random(seed)

    async def move(self, player: int, index: int, text: str) -> tuple[bool, int | None]:
        """Say a number in a game; whether it was allowed, and the game to move in next (None: all is over).

        Raises:
            ServiceError: the other player has been gone for too long.
        """
        game = self.games[index]
        assert game.to_move == player
        async with self._moved:
            is_allowed = game.say(text)
            self._moved.notify_all()
            for other in self.games:
                if self._bot is not None and not other.is_over and other.to_move == 1:
                    other.say(str(self._bot(other, self._rng)))
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._moved.wait_for(lambda: self._is_decided(player, index))
            except TimeoutError as error:
                raise ServiceError(f"the other player has not moved for {PATIENCE_SECONDS:.0f} seconds") from error
        return is_allowed, self._next_game(player, index)

    def _is_decided(self, player: int, index: int) -> bool:
        """True if it is known where the player moves next: in the other game while it lasts, else in the same."""
        waited_for = self.games[1 - index] if not self.games[1 - index].is_over else self.games[index]
        return waited_for.is_over or waited_for.to_move == player

    def _next_game(self, player: int, index: int) -> int | None:
        for candidate in (1 - index, index):
            game = self.games[candidate]
            if not game.is_over and game.to_move == player:
                return candidate
        return None


class RacePlayerEnv:
    """One player of a table. All reward is the group's: +1 for each game won and −1 for each lost, halved."""

    def __init__(self, table: GameTable, player: int, prompting: Prompting) -> None:
        self.player = player
        self._table = table
        self._index = player  # each opens the game of its own number
        self._prompting = prompting

    @property
    def score(self) -> float:
        """Mean over the two games of +1 for a win, −1 for a loss and 0 for one that never ended."""
        return sum(_score(game, self.player) for game in self._table.games) / len(self._table.games)

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        return self._observation(), self._prompting.renderer.get_stop_sequences()

    async def step(self, action: Sequence[int]) -> StepResult:
        renderer = self._prompting.renderer
        message, termination = renderer.parse_response(action)
        said = text_of(message)
        position = self._table.games[self._index].question()
        # What was cut off is no move, whatever it starts with.
        move = "" if termination == Termination.MALFORMED else said
        is_allowed, index = await self._table.move(self.player, self._index, move)
        self._index = self._index if index is None else index
        return StepResult(
            reward=0.0,
            episode_done=index is None,
            next_observation=tinker.ModelInput.empty() if index is None else self._observation(),
            next_stop_condition=renderer.get_stop_sequences(),
            metrics={"allowed": float(is_allowed)},
            logs={"position": position, "said": said},
        )

    def _observation(self) -> tinker.ModelInput:
        """The position alone: it says all that matters, and the two games are not mixed up."""
        asked = self._prompting.ask(self._table.games[self._index].question())
        return self._prompting.renderer.build_generation_prompt(asked)


def _score(game: RaceGame, player: int) -> int:
    if game.winner is None:
        return 0
    return 1 if game.winner == player else -1


@dataclass(frozen=True, kw_only=True)
class RaceGroupBuilder:
    """`group_size` players, two at each table; against a bot, one at each."""

    race: Race
    prompting: Prompting
    group_size: int
    bot: str | None = None

    async def make_envs(self) -> Sequence[Env]:
        if self.bot is None:
            tables = [GameTable(self.race) for _ in range(self.group_size // 2)]
            return [RacePlayerEnv(table, player, self.prompting) for table in tables for player in (0, 1)]
        bot = BOTS[self.bot]
        return [
            RacePlayerEnv(GameTable(self.race, bot, f"{self.race} {i}"), 0, self.prompting)
            for i in range(self.group_size)
        ]

    def coupled_members(self) -> Sequence[Sequence[int]]:
        """The two players of each table."""
        return [] if self.bot is not None else [(player, player + 1) for player in range(0, self.group_size, 2)]

    async def compute_group_rewards(
        self,
        trajectories_G: Sequence[Trajectory],  # noqa: ARG002
        envs_G: Sequence[Env],
    ) -> Sequence[tuple[float, Metrics]]:
        rewards: list[tuple[float, Metrics]] = []
        for env in envs_G:
            assert isinstance(env, RacePlayerEnv)
            rewards.append((env.score, {"won": (env.score + 1.0) / 2.0}))
        return rewards

    def logging_tags(self) -> Sequence[str]:
        return ["self_play"] if self.bot is None else [f"against_{self.bot}"]


@chz.chz
class SelfPlayConfig(EnvConfig):
    """Races against itself to train on, and against a scripted player to evaluate on."""

    has_tools = False
    unread = frozenset({"format_coef"})

    target: int = chz.field(default=31, doc="The number that wins.")
    max_add: int = chz.field(default=3, doc="How far above the last number the next one may be.")
    num_races: int = chz.field(default=512, doc="Races in an epoch, from every start of two digits as often.")
    opponent: str = chz.field(default="random", doc="Scripted player of the evaluation: random or perfect.")
    with_rules: bool = chz.field(default=True, doc="Explain the game in a system message, unless there is one.")

    async def build(self) -> tuple[GroupDataset[Race], GroupDataset[Race]]:
        """`num_races` races to train on, and one from every start to evaluate on. Positions are too few to keep any for
        the evaluation: what is held out is the opponent.

        Raises:
            InputError: a setting is unusable.
        """
        if self.opponent not in BOTS:
            raise UnknownNameError("opponent", self.opponent, BOTS)
        if self.group_size < 2 or self.group_size % 2:
            raise InputError(
                f"group_size is {self.group_size}; players sit in pairs, so it must be even and at least 2"
            )
        if self.max_add < 2:
            raise InputError(f"max_add is {self.max_add}; it must be at least 2, or there is nothing to choose")
        if self.target - self.max_add * _SHORTEST_RACE < 10:
            raise InputError(f"target is {self.target}; it must be at least {10 + self.max_add * _SHORTEST_RACE}")
        last = self.target - self.max_add * _SHORTEST_RACE
        every = [Race(start=start, target=self.target, max_add=self.max_add) for start in range(10, last + 1)]
        races = [every[index % len(every)] for index in range(self.num_races)]
        train = self.train_set(races, partial(self._group, None))
        return train, self.test_set(every, partial(self._group, self.opponent))

    def _group(self, bot: str | None, race: Race) -> RaceGroupBuilder:
        rules = RULES.format(max_add=self.max_add, target=self.target) if self.with_rules else None
        prompting = Prompting(
            model_name=self.model_name,
            renderer_name=self.renderer_name,
            force_renderer=self.force_renderer,
            system_prompt=self.system_prompt or rules,
        )
        return RaceGroupBuilder(race=race, prompting=prompting, group_size=self.group_size, bot=bot)
