"""Logprobs of the targets of datums, asked of a sampling client."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.training.clients.session import service_errors

ComputeLogprobs = Callable[[tinker.ModelInput], Awaitable[Sequence[float | None]]]
"""Logprob of each token of a sequence given those before it; None for the first."""


async def target_logprobs(
    compute: ComputeLogprobs, data_D: Sequence[tinker.Datum], doing: str = "computing logprobs of rollouts"
) -> list[NDArray[np.float32]]:
    """Logprob of each target of each datum. The first that fails ends the others."""

    async def of(datum: tinker.Datum) -> NDArray[np.float32]:
        targets_T = datum.loss_fn_inputs["target_tokens"].to_numpy()
        sequence = tinker.ModelInput.from_ints([*datum.model_input.to_ints(), int(targets_T[-1])])
        with service_errors(doing):
            return np.asarray((await compute(sequence))[1:], dtype=np.float32)

    try:
        async with asyncio.TaskGroup() as tasks:
            computing = [tasks.create_task(of(datum)) for datum in data_D]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in computing]
