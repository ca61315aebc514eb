"""Engines that misbehave, each in one way. Made without arguments, so that any transport can make them."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cookhouse.engine.contract import (
    AdamStep,
    ForwardBackward,
    ForwardBackwardOutput,
    Room,
    SampleOutput,
    SampleRequest,
)
from cookhouse.errors import InputError
from tests.server.fake_engine import FakeEngine


class SlowEngine(FakeEngine):
    """Each pass and each step takes a while."""

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        time.sleep(0.05)
        return super().forward_backward(requests)

    def optim_step(self, model_id: str, step: AdamStep) -> Mapping[str, float]:
        time.sleep(0.05)
        return super().optim_step(model_id, step)


class SlowDisk(FakeEngine):
    """Each file takes a while to be written."""

    def copy_state(self, model_id: str, **parts: bool) -> Callable[[Path], None] | None:
        write = super().copy_state(model_id, **parts)
        assert write is not None

        def write_slowly(folder: Path) -> None:
            time.sleep(0.05)
            write(folder)

        return write_slowly


class LittleMemory(FakeEngine):
    """Has no room for copies of state."""

    def copy_state(self, model_id: str, **parts: bool) -> Callable[[Path], None] | None:  # noqa: ARG002
        return None

    def save_state(self, model_id: str, folder: Path, **parts: bool) -> None:
        write = super().copy_state(model_id, **parts)
        assert write is not None
        write(folder)


class BrokenSamples(FakeEngine):
    """Cannot go on where a prompt begins with 13."""

    def step_samples(self) -> Sequence[SampleOutput]:
        if any(running.request.prompt_T[0] == 13 for running in self._running):
            raise RuntimeError("13 is bad luck")
        return super().step_samples()


class EndlessSamples(FakeEngine):
    """Samples go on until they are canceled."""

    def step_samples(self) -> Sequence[SampleOutput]:
        time.sleep(0.001)
        return []


class BrokenPasses(FakeEngine):
    """A pass of token 13 fails all that run with it."""

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        if any(13 in request.data_D[0].tokens_T for request in requests):
            raise RuntimeError("13 is bad luck")
        return super().forward_backward(requests)


class NoEngine(FakeEngine):
    """Cannot be made."""

    def __init__(self) -> None:
        raise InputError("there is no such device; use cpu")


class SlowStart(FakeEngine):
    """Takes a while to be made."""

    def __init__(self) -> None:
        time.sleep(0.1)
        super().__init__()


class CountedSamples(FakeEngine):
    """Refuses a request whose prompt begins with 13."""

    def submit_sample(self, request: SampleRequest) -> None:
        if request.prompt_T[0] == 13:
            raise InputError("13 is bad luck")
        super().submit_sample(request)


class LittleRoom(FakeEngine):
    """Has room for four models, and loads its base model with the first."""

    model_bytes = 2**20

    def room(self) -> Room:
        names = {model.base_model for model in self._models.values()}
        return Room(free_bytes=(4 - len(self._models)) * self.model_bytes, base_models=tuple(names))
