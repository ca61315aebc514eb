"""Twenty questions: the model finds out a secret by asking, and another one answers.

The secret is a word, and a second model answers; or, small enough for the embedded model to learn in minutes, one of a
few two-digit numbers, and rules answer. Under the renderer `human_ai` the base model names one of the numbers in four
of ten answers, and mostly the same one again.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import chz

from cookhouse.chat import Message, Renderer, Termination, text_of
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import EnvFactoryGroupBuilder
from cookhouse.envs.prompting import Prompting
from cookhouse.envs.rows import read_problems, text_field
from cookhouse.envs.second_model import OpenSampler, SecondModelSpec
from cookhouse.errors import InputError
from cookhouse.rl import EnvFromMessageEnv, MessageCompleter, MessageStepResult, TokenCompleter

_ASK = (
    "We play a game of twenty questions, and you answer. The secret is: {secret}. Answer the question about the secret "
    "with Yes or No, and nothing else.\n\nQuestion: {question}"
)
_VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_COMPARISON = re.compile(r"\b(larger|greater|higher|more|smaller|less|lower|fewer) than (\d{1,9})\b", re.IGNORECASE)
_LARGER = {"larger", "greater", "higher", "more"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Reply of an answerer, with figures on how it was made."""

    text: str
    metrics: Mapping[str, float] = field(default_factory=dict)


class GameAnswerer(Protocol):
    """Knows the secret and answers questions about it."""

    async def __call__(self, secret: str, question: str) -> Reply:
        """The answer, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswerer:
    """Asks a model, and passes on no more than its yes or no; what it thought before is not read.

    The figures are 0 or 1: `answerer/empty` without any text, `answerer/cut` that did not end by itself, and
    `answerer/undecided` with neither yes nor no.
    """

    completer: TokenCompleter
    renderer: Renderer

    async def __call__(self, secret: str, question: str) -> Reply:
        asked = _ASK.format(secret=secret, question=question)
        prompt = self.renderer.build_generation_prompt([{"role": "user", "content": asked}])
        response = await self.completer(prompt, self.renderer.get_stop_sequences())
        message, termination = self.renderer.parse_response(response.tokens)
        reply = _reply(text_of(message))
        cut = {"answerer/cut": float(termination == Termination.MALFORMED)}
        return Reply(text=reply.text, metrics={**reply.metrics, **cut})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleterGameAnswerer:
    """As `ModelAnswerer`, by a completer of messages: nobody says whether its answers end by themselves."""

    completer: MessageCompleter

    async def __call__(self, secret: str, question: str) -> Reply:
        asked = _ASK.format(secret=secret, question=question)
        return _reply(text_of(await self.completer([{"role": "user", "content": asked}])))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberAnswerer:
    """Compares the secret, a whole number, with one in the question; a wrong number is `Not 12.`, all else `No.`"""

    async def __call__(self, secret: str, question: str) -> Reply:
        return Reply(text=_compare(int(secret), question))


def _reply(text: str) -> Reply:
    verdict = _VERDICT.search(text)
    return Reply(
        text=f"{verdict[0].capitalize()}." if verdict else "I cannot answer that.",
        metrics={"answerer/empty": float(not text.strip()), "answerer/undecided": float(verdict is None)},
    )


def _compare(secret: int, question: str) -> str:
    if comparison := _COMPARISON.search(question):
        word, bound = comparison[1].lower(), int(comparison[2])
        is_true = secret > bound if word in _LARGER else secret < bound
        return "Yes." if is_true else "No."
    named = re.findall(r"\d{1,9}", question)
    return f"Not {named[0]}." if len(named) == 1 else "No."


MAX_TURNS = 20
_ANSWER_TOKENS = 64
_TEST_PERIOD = 5
"""One word in so many is kept for the test."""
_NUM_GAMES = (800, 100)
"""Games about numbers, to train and to test on."""

_OPENING = (
    "I am thinking of a thing. Find out what it is: ask me one question at a time that can be answered with yes or no. "
    "As soon as you know it, write its name alone. You have {max_turns} turns."
)
_LEAD = re.compile(r"^(guess:|my guess is|is it|it is|it's)\s+", re.IGNORECASE)
_ARTICLE = re.compile(r"^(an?|the)\s+", re.IGNORECASE)
_NAMES = """
    apple banana bread butter carrot cheese coffee honey lemon onion pizza potato rice salt soup sugar tomato
    ant bear bee butterfly camel cat chicken cow crocodile dog dolphin duck eagle elephant fox frog giraffe horse
    kangaroo lion monkey mouse octopus owl parrot penguin rabbit shark sheep snake spider tiger turtle whale wolf zebra
    airplane anchor bicycle boat bridge bus car elevator helicopter rocket ship submarine tractor train truck
    bed blanket book bottle broom bucket calendar camera candle chair clock comb cup door envelope fork glasses hammer
    key knife ladder lamp lock mirror needle newspaper pencil piano pillow scissors shoe soap spoon table telephone
    television tent toothbrush towel umbrella violin wallet watch window
    cactus castle cloud desert forest glacier island lake lighthouse moon mountain rainbow river snow star sun tree
    volcano waterfall
    doctor farmer firefighter king pilot teacher
    balloon baseball chess doll guitar kite puzzle trophy trumpet
    coat glove hat necklace ring scarf sock
"""
WORDS: tuple[str, ...] = tuple(_NAMES.split())
"""Things to guess: concrete, known to everybody, of many kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Word that is to be found out; `candidates` are named at the start, if there are any."""

    word: str
    candidates: Sequence[str] = ()

    def opening(self, max_turns: int) -> str:
        """The first message to the model."""
        if not self.candidates:
            return _OPENING.format(max_turns=max_turns)
        return _which(self.candidates)

    def is_named_by(self, text: str) -> bool:
        """True if a message is a right guess: the word alone, or after `Is it`, `Guess:` and the like."""
        guess = _ARTICLE.sub("", _LEAD.sub("", text.strip())).strip(" \t\"'*.?!")
        return guess.casefold() == self.word.casefold()


def _which(candidates: Sequence[str]) -> str:
    *others, last = candidates
    return f"Which number is it: {', '.join(others)} or {last}?" if others else f"Is it {last}?"


class TwentyQuestionsEnv:
    """One game, an environment of messages: reward 1 for naming the secret in one of `max_turns` turns, else 0.

    Where there are candidates, every answer names those that are left.
    """

    def __init__(
        self, secret: Secret, answerer: GameAnswerer, prompting: Prompting, *, max_turns: int = MAX_TURNS
    ) -> None:
        self.secret = secret
        self._answerer = answerer
        self._messages = prompting.ask(secret.opening(max_turns))
        self._candidates = list(secret.candidates)
        self._turns_left = max_turns

    async def initial_observation(self) -> Sequence[Message]:
        return self._messages

    async def step(self, message: Message) -> MessageStepResult:
        said = text_of(message)
        self._turns_left -= 1
        is_found = self.secret.is_named_by(said)
        if is_found or not self._turns_left:
            return MessageStepResult(
                reward=float(is_found),
                episode_done=True,
                logs={"said": said, "expected": self.secret.word},
            )
        reply = await self._answerer(self.secret.word, said)
        answer = reply.text
        self._candidates = [word for word in self._candidates if await self._is_possible(word, said, answer)]
        content = f"{answer} {_which(self._candidates)}" if self._candidates else answer
        self._messages = [*self._messages, message, {"role": "user", "content": content}]
        return MessageStepResult(
            reward=0.0,
            episode_done=False,
            next_messages=self._messages,
            metrics=reply.metrics,
            logs={"said": said, "answer": answer},
        )

    async def _is_possible(self, word: str, said: str, answer: str) -> bool:
        """True if the same would have been answered if `word` were the secret."""
        return not Secret(word=word).is_named_by(said) and (await self._answerer(word, said)).text == answer


@chz.chz
class TwentyQuestionsConfig(EnvConfig):
    """Games about words that a second model answers, or, with `num_candidates`, about numbers that rules answer."""

    has_tools = False
    unread = frozenset({"format_coef"})

    answerer_model: str | None = chz.field(default=None, doc="Model that answers; None: numbers, answered by rules.")
    answerer_renderer: str | None = chz.field(
        default=None,
        doc="Its chat format; default: that of the run that trained it, else the model's own, with thinking off where "
        "its family has a way.",
    )
    answerer_max_tokens: int | None = chz.field(
        default=None, doc="Tokens of its answers; default: 64, and 2048 more where it thinks."
    )
    words_path: str | None = chz.field(default=None, doc='JSONL of {"word": ...}; default: a list of things.')
    num_candidates: int = chz.field(default=4, doc="Numbers that the secret is one of, where rules answer.")
    num_turns: int = chz.field(default=MAX_TURNS, doc="Turns to find the secret in.")

    async def build(self, open_sampler: OpenSampler | None = None) -> tuple[GroupDataset[Secret], GroupDataset[Secret]]:
        """Games to train and to test on, of different secrets or different candidates.

        Raises:
            InputError: a setting is unusable, or a model is to answer and there is nothing to sample from it with.
        """
        if self.num_turns < 1:
            raise InputError(f"num_turns is {self.num_turns}; it must be at least 1")
        if self.answerer_model is None:
            train, test = number_games(self.num_candidates, self.seed)
            answerer: GameAnswerer = NumberAnswerer()
        else:
            train, test = self._word_games()
            answerer = await self._model_answerer(self.answerer_model, open_sampler)
        return (
            self.train_set(train, partial(self._group, answerer, self.group_size)),
            self.test_set(test, partial(self._group, answerer, 1)),
        )

    def _group(self, answerer: GameAnswerer, group_size: int, secret: Secret) -> EnvFactoryGroupBuilder:
        make_env = partial(_make_env, secret, answerer, self.prompting, self.num_turns)
        return EnvFactoryGroupBuilder(make_env=make_env, group_size=group_size, tags=("twenty_questions",))

    def _word_games(self) -> tuple[list[Secret], list[Secret]]:
        words = list(WORDS)
        if self.words_path is not None:
            words = read_problems(self.words_path, lambda row: text_field(row, "word").strip() or None)
        secrets = [Secret(word=word) for word in dict.fromkeys(words)]
        if len(secrets) < 2:
            raise InputError(f"{self.words_path} holds one word; some are kept for the test, so there must be more")
        test = secrets[_TEST_PERIOD - 1 :: _TEST_PERIOD] or secrets[-1:]
        return [secret for secret in secrets if secret not in test], test

    async def _model_answerer(self, model: str, open_sampler: OpenSampler | None) -> GameAnswerer:
        if open_sampler is None:
            raise InputError(f"answerer_model is {model!r}, and there is no service to sample from it")
        spec = SecondModelSpec(
            model_name=model,
            trained_model=self.model_name,
            renderer_name=self.answerer_renderer,
            force_renderer=self.force_renderer,
            max_tokens=self.answerer_max_tokens,
            answer_tokens=_ANSWER_TOKENS,
            temperature=0.0,
        )
        given = spec.completer_of(open_sampler)
        if given is not None:
            return CompleterGameAnswerer(completer=given)
        completer, renderer = await spec.open(open_sampler)
        return ModelAnswerer(completer=completer, renderer=renderer)


def number_games(num_candidates: int, seed: int) -> tuple[list[Secret], list[Secret]]:
    """Games to train and to test on; no set of candidates is in both. Raises `InputError` unless 2 to 20 are asked."""
    if not 2 <= num_candidates <= 20:
        raise InputError(f"num_candidates is {num_candidates}; it must be from 2 to 20")
    rng = random.Random(f"twenty questions {seed}")
    games: dict[frozenset[str], Secret] = {}
    while len(games) < sum(_NUM_GAMES):
        candidates = tuple(map(str, rng.sample(range(10, 100), num_candidates)))
        games.setdefault(frozenset(candidates), Secret(word=rng.choice(candidates), candidates=candidates))
    secrets = list(games.values())
    return secrets[: _NUM_GAMES[0]], secrets[_NUM_GAMES[0] :]


def _make_env(secret: Secret, answerer: GameAnswerer, prompting: Prompting, max_turns: int) -> EnvFromMessageEnv:
    env = TwentyQuestionsEnv(secret, answerer, prompting, max_turns=max_turns)
    return EnvFromMessageEnv(env, prompting.renderer)
