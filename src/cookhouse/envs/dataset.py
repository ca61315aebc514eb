"""Data sets of groups: problems in batches, in an order that the seed and the epoch decide."""

import logging
import random
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, Self, TypeVar

import chz

from cookhouse.envs.prompting import Prompting
from cookhouse.errors import InputError
from cookhouse.rl import EnvGroupBuilder
from cookhouse.settings import EnvironmentSettings

P = TypeVar("P")
_log = logging.getLogger(__name__)


class GroupDataset(Generic[P]):
    """One group for each problem.

    Batch `index` counts on over epochs: those from `len(dataset)` on are the second epoch's, in an order of its own.
    What does not fill another batch makes a last, smaller one.

    Raises:
        InputError: there are no problems, or `batch_size` or `n_batches` is below 1.
    """

    def __init__(
        self,
        problems: Sequence[P],
        make_group: Callable[[P], EnvGroupBuilder],
        *,
        batch_size: int,
        seed: int | None = 0,
        n_batches: int | None = None,
        asked: str = "",
    ) -> None:
        """`seed` None keeps the order of the problems, in one epoch as in the other. `asked` says what a question has
        that the rows do not.
        """
        self.problems = problems
        self.asked = asked
        self._make_group = make_group
        self._batch_size = batch_size
        self._seed = seed
        _check(batch_size, len(problems))
        num_all = -(-len(problems) // batch_size)
        self._num_batches = num_all if n_batches is None else min(n_batches, num_all)
        if self._num_batches < 1:
            raise InputError(f"n_batches is {n_batches}; it must be at least 1")

    def __len__(self) -> int:
        return self._num_batches

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """The groups of a batch. Raises `IndexError` below 0."""
        if index < 0:
            raise IndexError(f"batch {index}; batches count from 0")
        epoch, batch = divmod(index, self._num_batches)
        order = list(range(len(self.problems)))
        if self._seed is not None:
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
        chosen = order[batch * self._batch_size : (batch + 1) * self._batch_size]
        return [self._make_group(self.problems[i]) for i in chosen]


@chz.chz
class EnvConfig(EnvironmentSettings):
    """Settings that every config of environments has: the model, and the amount of sampling."""

    has_several_turns: ClassVar[bool] = True
    """Whether an episode may have more turns than one."""
    has_tools: ClassVar[bool] = True
    """Whether one of several turns may call tools."""
    unread: ClassVar[frozenset[str]] = frozenset()
    """Settings of every environment that these ones do not depend on."""

    system_prompt: str | None = chz.field(default=None, doc="First message of every conversation.")
    n_test_samples: int | None = chz.field(default=None, doc="Evaluate on only so many; default: all.")

    @property
    def prompting(self) -> Prompting:
        return Prompting(
            model_name=self.model_name,
            renderer_name=self.renderer_name,
            force_renderer=self.force_renderer,
            system_prompt=self.system_prompt,
        )

    def with_batch_size(self, batch_size: int) -> Self:
        """The same, with so many groups in a batch."""
        return chz.replace(self, batch_size=batch_size)

    def train_set(
        self, problems: Sequence[P], make_group: Callable[[P], EnvGroupBuilder], *, asked: str = ""
    ) -> "GroupDataset[P]":
        """The first `n_train_samples` problems, shuffled by the seed. Raises `InputError` for an impossible size."""
        _check_group_size(self.group_size)
        return GroupDataset(
            first(problems, self.n_train_samples, "n_train_samples"),
            make_group,
            batch_size=self.batch_size,
            seed=self.seed,
            n_batches=self.n_batches,
            asked=asked,
        )

    def test_set(self, problems: Sequence[P], make_group: Callable[[P], EnvGroupBuilder]) -> "GroupDataset[P]":
        """`n_test_samples` problems, evenly spaced and in their order, all in one batch."""
        chosen = problems
        if self.n_test_samples is not None:
            _check_count(self.n_test_samples, "n_test_samples")
            chosen = evenly_spaced(problems, self.n_test_samples)
        return GroupDataset(chosen, make_group, batch_size=len(chosen), seed=None)


def first(problems: Sequence[P], count: int | None, name: str) -> Sequence[P]:
    """The first `count` problems, or all. Raises `InputError` if `count` is below 1."""
    if count is not None:
        _check_count(count, name)
    return problems[:count]


def evenly_spaced(items: Sequence[P], count: int) -> list[P]:
    """At most `count` of the items, in their order, from the first on with equal gaps."""
    kept = min(count, len(items))
    return [items[index * len(items) // kept] for index in range(kept)]


def _check_count(count: int, name: str) -> None:
    if count < 1:
        raise InputError(f"{name} is {count}; it must be at least 1")


def _check_group_size(group_size: int) -> None:
    if group_size < 1:
        raise InputError(f"group_size is {group_size}; it must be at least 1")


def _check(batch_size: int, num_problems: int) -> None:
    if not num_problems:
        raise InputError("there are no problems; a data set needs at least one")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it must be at least 1")
    if batch_size > num_problems:
        _log.warning("batch_size is %d and there are %d problems: they make one batch", batch_size, num_problems)
