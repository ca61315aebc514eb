"""Amount of a data set that the first steps of a run train on: whole passes, and the batches of a part of one."""

from collections.abc import Callable, Iterator, Sequence


def count_items(num_items: int, *, batch_size: int, total_steps: int, steps_per_epoch: int) -> int:
    """Items that these steps train on, each as often as they do. A set that is through before its epoch begins again;
    the last batch of a pass has what is left.
    """
    parts = _passes(num_items, batch_size, total_steps, steps_per_epoch)
    return sum(laps * num_items + left * batch_size for _, laps, left in parts)


def count_positions(
    sizes: Sequence[int],
    order_of: Callable[[int, int], Sequence[int]],
    *,
    batch_size: int,
    total_steps: int,
    steps_per_epoch: int,
) -> int:
    """The same in positions, of items with these `sizes`, which `order_of` an epoch and a lap in it puts in order."""
    whole = sum(sizes)
    return sum(
        laps * whole + sum(sizes[i] for i in (order_of(epoch, laps)[: left * batch_size] if left else ()))
        for epoch, laps, left in _passes(len(sizes), batch_size, total_steps, steps_per_epoch)
    )


def _passes(num_items: int, batch_size: int, total_steps: int, steps_per_epoch: int) -> Iterator[tuple[int, int, int]]:
    """Of each epoch: its number, how often the set is gone through as a whole, and batches of a further pass."""
    num_batches = -(-num_items // batch_size)
    epochs, rest = divmod(total_steps, steps_per_epoch)
    for epoch in range(epochs + 1):
        yield (epoch, *divmod(steps_per_epoch if epoch < epochs else rest, num_batches))
