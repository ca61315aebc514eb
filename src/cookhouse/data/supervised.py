"""The data set of a supervised run: examples in batches, in an order that the epoch decides."""

import logging
import random
from collections.abc import Sequence

import tinker

from cookhouse.data.datum import Reduction, shifted_datum
from cookhouse.data.examples import Example, ExampleStatistics, example_statistics
from cookhouse.errors import InputError

_log = logging.getLogger(__name__)


class SupervisedDataset:
    """Batches of equal size. Before `set_epoch` the order is that of the examples.

    Examples without a trained token are left out and counted. What does not fill a last batch sits out one epoch; with
    the next shuffle it is other examples.

    Raises:
        InputError: no example has a trained token, or a batch is not between 1 and the number of those that have.
    """

    def __init__(
        self, examples: Sequence[Example], *, batch_size: int, reduction: Reduction = "none", seed: int = 0
    ) -> None:
        self.examples = [example for example in examples if example.num_trained_tokens]
        self.untrained = [example for example in examples if not example.num_trained_tokens]
        self.batch_size = batch_size
        self._reduction: Reduction = reduction
        self._seed = seed
        self._order = list(range(len(self.examples)))
        self._check()

    def __len__(self) -> int:
        return len(self.examples) // self.batch_size

    def get_batch(self, index: int) -> list[tinker.Datum]:
        """The datums of batch `index` in the present order. Raises `IndexError` outside `range(len(self))`."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        chosen = self._order[index * self.batch_size : (index + 1) * self.batch_size]
        return [shifted_datum(e.tokens_T, e.weights_T, self._reduction) for e in (self.examples[i] for i in chosen)]

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for an epoch: the order depends on it and on the data set's seed alone."""
        self._order = list(range(len(self.examples)))
        random.Random(f"{self._seed}/{epoch}").shuffle(self._order)

    @property
    def statistics(self) -> ExampleStatistics:
        """Figures of all examples, those without a trained token included."""
        return example_statistics([*self.examples, *self.untrained])

    @property
    def left_out(self) -> str | None:
        """A sentence about the examples without a trained token; None if there are none."""
        if not self.untrained:
            return None
        num_all = len(self.untrained) + len(self.examples)
        first = _why_untrained(self.untrained[0])
        return (
            f"{len(self.untrained)} of {num_all} examples have no trained token and are left out; the first is {first}"
        )

    def _check(self) -> None:
        if not self.examples:
            first = f" (the first is {_why_untrained(self.untrained[0])})" if self.untrained else ""
            raise InputError(f"no example has a trained token{first}; check train_on_what and max_length")
        if self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}; it must be at least 1")
        if self.batch_size > len(self.examples):
            raise InputError(
                f"batch_size is {self.batch_size} and there are only {len(self.examples)} examples to train on; "
                f"use batch_size={len(self.examples)} or less, or more data"
            )
        if self.left_out:
            _log.warning("%s", self.left_out)


def _why_untrained(example: Example) -> str:
    if example.num_cut_tokens:
        kept = example.tokens_T.size
        return f"{example.source}, cut from {kept + example.num_cut_tokens} to {kept} tokens"
    return f"{example.source}, which has no message to train on"
