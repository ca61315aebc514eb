"""The suites of both clients of a training service: kept by the made-up ones, and each broken promise is caught."""

from collections.abc import Callable
from typing import Any

import pytest
import tinker

from cookhouse.testing import SamplingClientContract, TrainingClientContract, failures_of
from cookhouse.training import Connect, FakeService, NoopService
from cookhouse.training.clients import fake


class TestFakeTraining(TrainingClientContract):
    def make(self) -> Connect:
        return FakeService().connect


class TestNoopTraining(TrainingClientContract):
    def make(self) -> Connect:
        return NoopService(seed=3)


class TestFakeSampling(SamplingClientContract):
    def make(self) -> Connect:
        return FakeService().connect


class TestNoopSampling(SamplingClientContract):
    def make(self) -> Connect:
        return NoopService(seed=3)


class _Broken:
    """A connection to a service of which one method is another."""

    def __init__(self, patch: pytest.MonkeyPatch, where: type, method: str, instead: Callable[..., Any]) -> None:
        patch.setattr(where, method, instead)

    def __call__(self) -> Any:
        return FakeService().connect()


def _training(connect: Connect) -> set[str]:
    class Suite(TrainingClientContract):
        def make(self) -> Connect:
            return connect

    return set(failures_of(Suite()))


def _sampling(connect: Connect) -> set[str]:
    class Suite(SamplingClientContract):
        def make(self) -> Connect:
            return connect

    return set(failures_of(Suite()))


_Trainer, _Sampler, _Service = fake.FakeTrainingClient, fake.FakeSamplingClient, FakeService
_forward, _forward_backward, _optim_step = _Trainer.forward, _Trainer.forward_backward, _Trainer.optim_step
_sample, _load = _Sampler.sample, _Service.create_training_client_from_state


def _ignores_what_came_before(self: Any, data: Any, loss_fn: str, config: Any = None) -> Any:
    self._state.gradient[:] = 0
    return _forward_backward(self, data, loss_fn, config)


def _leaves_a_gradient(self: Any, data: Any, loss_fn: str, config: Any = None) -> Any:
    _forward_backward(self, data, loss_fn, config)
    return _forward(self, data, loss_fn, config)


def _climbs(self: Any, params: tinker.AdamParams) -> Any:
    return _optim_step(self, params.model_copy(update={"learning_rate": -params.learning_rate}))


def _forgets_the_optimizer(self: Any, path: str) -> Any:
    return _load(self, path)


def _makes_up_checkpoints(self: Any, path: str) -> Any:
    self.states.setdefault(path, fake.FakeState(theta=self.chance(0).normal(size=512)))
    return self.states[path]


async def _keeps_it(self: Any, path: str) -> None:
    self.state(path)


async def _deletes_all(self: Any, path: str) -> None:
    del path
    self.states.clear()


class _Live(fake.FakeSamplingClient):
    """Samples from the weights as they are now."""

    def __init__(self, service: FakeService, state: fake.FakeState) -> None:
        self._service = service
        self._state = state

    @property
    def _theta(self) -> Any:  # type: ignore[override]
        return self._state.theta


def _follows_training(self: Any) -> Any:
    return self._service.request("snapshot", _Live(self._service, self._state))


@pytest.mark.parametrize(
    ("where", "method", "instead", "broken"),
    [
        (_Trainer, "forward_backward", _ignores_what_came_before, "test_gradients_add_up_until_a_step"),
        (_Trainer, "forward", _leaves_a_gradient, "test_forward_leaves_no_gradient"),
        (_Trainer, "optim_step", _climbs, "test_training_lowers_the_loss"),
        (
            _Service,
            "create_training_client_from_state_with_optimizer",
            _forgets_the_optimizer,
            "test_saved_state_restores_the_optimizer",
        ),
        (_Service, "state", _makes_up_checkpoints, "test_a_checkpoint_that_is_not_there_is_refused"),
        (_Service, "delete_checkpoint", _keeps_it, "test_a_deleted_checkpoint_is_gone_and_no_other"),
        (_Service, "delete_checkpoint", _deletes_all, "test_a_deleted_checkpoint_is_gone_and_no_other"),
    ],
)
def test_a_broken_training_client_is_caught(
    where: type, method: str, instead: Any, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broken in _training(_Broken(monkeypatch, where, method, instead))


def _one_too_few(self: Any, prompt: Any, num_samples: int, params: Any) -> Any:
    return _sample(self, prompt, num_samples - 1, params)


def _does_not_stop(self: Any, prompt: Any, num_samples: int, params: Any) -> Any:
    return _sample(self, prompt, num_samples, params.model_copy(update={"stop": None}))


@pytest.mark.parametrize(
    ("where", "method", "instead", "broken"),
    [
        (_Sampler, "sample", _one_too_few, "test_samples_are_as_asked_for"),
        (_Sampler, "sample", _does_not_stop, "test_stops_at_a_token"),
        (_Trainer, "save_weights_and_get_sampling_client", _follows_training, "test_weights_stay_as_they_were"),
        (_Service, "state", _makes_up_checkpoints, "test_weights_that_are_not_there_are_refused"),
    ],
)
def test_a_broken_sampling_client_is_caught(
    where: type, method: str, instead: Any, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broken in _sampling(_Broken(monkeypatch, where, method, instead))


@pytest.mark.anyio
async def test_the_noop_service_is_the_same_for_a_seed() -> None:
    async def sampled(seed: int) -> list[list[int]]:
        client = await (await NoopService(seed)()).create_sampling_client(base_model="any")
        prompt = tinker.ModelInput.from_ints(list(range(100)))
        params = tinker.SamplingParams(max_tokens=8, seed=1)
        return [list(sequence.tokens) for sequence in (await client.sample(prompt, 4, params)).sequences]

    assert await sampled(1) == await sampled(1)
    assert await sampled(1) != await sampled(2)
