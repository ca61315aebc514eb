"""Suite that every evaluator passes."""

import asyncio
import math

from cookhouse.evals import Evaluator, Metrics, TrainingClientEvaluator
from cookhouse.testing.contract import Contract, require
from cookhouse.training import FakeService


class EvaluatorContract(Contract[Evaluator]):
    """The suite of `cookhouse.evals.Evaluator`: it measures a model that is made up, by a service in memory."""

    def test_measures(self) -> None:
        found = self._measure(self.make(), FakeService())
        require(len(found) > 0, "an evaluator measures something")
        for name, value in found.items():
            is_name = isinstance(name, str) and bool(name) and " " not in name and not name.startswith("/")
            require(is_name, f"metrics have names without spaces, unlike {name!r}")
            is_figure = value is None or (isinstance(value, int | float) and math.isfinite(value))
            require(is_figure, f"{name} is a finite number, or None where nothing was measured; not {value!r}")

    def test_the_same_weights_give_the_same_figures(self) -> None:
        evaluator = self.make()
        first, second = self._measure(evaluator, FakeService()), self._measure(evaluator, FakeService())
        require(first == second, f"the same weights give the same figures: {first}, then {second}")

    def test_leaves_the_model_alone(self) -> None:
        service = FakeService()
        self._measure(self.make(), service)
        changing = {call.kind for call in service.calls} - {"create_model", "forward", "snapshot", "sample"}
        changing -= {"compute_logprobs"}
        require(not changing, f"an evaluator only samples, and asks forward; not {', '.join(sorted(changing))}")

    def _measure(self, evaluator: Evaluator, service: FakeService) -> Metrics:
        return asyncio.run(_measure(evaluator, service))


async def _measure(evaluator: Evaluator, service: FakeService) -> Metrics:
    trainer = await service.create_lora_training_client("made-up", seed=0)
    if isinstance(evaluator, TrainingClientEvaluator):
        return await evaluator(trainer)
    return await evaluator(await trainer.save_weights_and_get_sampling_client())
