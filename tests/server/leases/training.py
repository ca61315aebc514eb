"""A tenant's program over the published SDK, which knows nothing of servers and catches no error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tinker
from tests.contract.calls import ADAM, datum, new_trainer
from tests.server.hosting import KEY

NUM_STEPS = 20


@dataclass(frozen=True)
class Told:
    """What the service answered, to the bit."""

    losses: Sequence[float]
    name: str
    tokens: Sequence[int]


def trained(url: str, key: str = KEY, seed: int = 3, on_step: Callable[[int], None] = lambda _step: None) -> Told:
    """Train, with the next step sent before this one is answered, and sample from what was trained."""
    losses = []
    with tinker.ServiceClient(base_url=url, api_key=key) as client:
        trainer = new_trainer(client)
        before = None
        for step in range(NUM_STEPS):
            data = [datum([(seed + step + token) % 60 + 1 for token in range(8)])]
            passed, stepped = trainer.forward_backward(data, "cross_entropy"), trainer.optim_step(ADAM)
            if before is not None:
                losses.append(before[0].result().metrics["loss:sum"])
                before[1].result()
                on_step(step)
            before = passed, stepped
        assert before is not None
        losses.append(before[0].result().metrics["loss:sum"])
        path = trainer.save_state("end").result().path
        sampler = trainer.save_weights_and_get_sampling_client().result()
        prompt = tinker.types.ModelInput.from_ints([1, 2, 3])
        parameters = tinker.types.SamplingParams(max_tokens=8, seed=5, stop=[])
        [sequence] = sampler.sample(prompt, 1, parameters).result().sequences
    return Told(losses, path.split("/", 3)[-1], list(sequence.tokens))
