"""The data set of a supervised run: examples in batches, in an order that the epoch decides."""

import random
from collections.abc import Sequence

import tinker

from cookhouse.data.batches.counting import count_positions
from cookhouse.data.batches.datum import Reduction, shifted_datum
from cookhouse.data.batches.examples import Example, ExampleStatistics, example_statistics
from cookhouse.errors import InputError
from cookhouse.telemetry import ResultNote


class SupervisedDataset:
    """Batches of `batch_size` examples; what does not fill another makes a last, smaller one. Before `set_epoch` the
    order is that of the examples.

    Examples without a trained token are left out and counted. `notes` says what a person should know. `batch_size` may
    be set anew before there are batches.

    Raises:
        InputError: no example has a trained token, or `batch_size` is below 1.
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
        return -(-len(self.examples) // self.batch_size)

    def get_batch(self, index: int) -> list[tinker.Datum]:
        """The datums of batch `index` in the present order. Raises `IndexError` outside `range(len(self))`."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        chosen = self._order[index * self.batch_size : (index + 1) * self.batch_size]
        examples = [self.examples[i] for i in chosen]
        return [shifted_datum(e.tokens_T, e.weights_T, self._reduction, e.images) for e in examples]

    def set_epoch(self, epoch: int, lap: int = 0) -> None:
        """Shuffle for an epoch, or for a further pass within it: the order depends on it and on the seed alone."""
        self._order = self._order_of(epoch, lap)

    def count_positions(self, total_steps: int, steps_per_epoch: int) -> int:
        """Number of positions of the datums of a run's first steps, each as often as it is trained on."""
        sizes = [example.tokens_T.size - 1 for example in self.examples]
        return count_positions(
            sizes,
            self._order_of,
            batch_size=self.batch_size,
            total_steps=total_steps,
            steps_per_epoch=steps_per_epoch,
        )

    def _order_of(self, epoch: int, lap: int) -> list[int]:
        order = list(range(len(self.examples)))
        random.Random(f"{self._seed}/{epoch}" + (f"/{lap}" if lap else "")).shuffle(order)
        return order

    @property
    def statistics(self) -> ExampleStatistics:
        """Figures of all examples, those without a trained token included."""
        return example_statistics([*self.examples, *self.untrained])

    @property
    def notes(self) -> list[str]:
        """A sentence for each thing about the batches that is not as one may expect it."""
        num_left, num_over = len(self.examples), len(self.examples) % self.batch_size
        notes: list[str] = []
        if self.untrained:
            notes.append(
                ResultNote(
                    f"{len(self.untrained)} of {len(self.untrained) + num_left} examples have no trained token and are "
                    f"left out; the first is {_why_untrained(self.untrained[0])}"
                )
            )
        if num_left < self.batch_size:
            notes.append(f"batch_size is {self.batch_size} and there are {num_left} examples: they make one batch")
        elif num_over:
            notes.append(f"the last batch of an epoch has {num_over} of the {num_left} examples, not {self.batch_size}")
        return notes

    def _check(self) -> None:
        if not self.examples:
            first = f" (the first is {_why_untrained(self.untrained[0])})" if self.untrained else ""
            raise InputError(f"no example has a trained token{first}; check train_on_what and max_length")
        if self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}; it must be at least 1")


def _why_untrained(example: Example) -> str:
    if example.num_cut_tokens:
        kept = example.tokens_T.size
        return f"{example.source}, cut from {kept + example.num_cut_tokens} to {kept} tokens"
    return f"{example.source}, which has no message to train on"
