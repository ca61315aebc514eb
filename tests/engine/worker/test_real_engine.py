"""Workers over the real engine: what it gives comes through to the bit, and no tenant waits behind another."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    Done,
    Forget,
    SampleRequest,
    Up,
)
from tests.engine.worker.conftest import MakeWorker
from tests.engine.worker.driver import ADAM, ALICE, BASE, BOB, LORA, Driver, forward_backward
from tests.engine.worker.real_engine import TinyEngine

transports = pytest.mark.parametrize(
    "make_worker", ["thread", pytest.param("child", marks=pytest.mark.slow)], indirect=True
)


PROMPTS = [1, 2, 3, 4, 5], [7, 8, 9]


@transports
def test_what_comes_through_is_what_the_engine_gives(make_worker: MakeWorker, tmp_path: Path) -> None:
    """Would catch numbers that are rounded or cut on their way."""
    worker = make_worker(TinyEngine)
    command = worker.sample("s", max_tokens=20, seed=3)
    with ThreadPoolExecutor(1) as apart:
        passes, steps, tokens = apart.submit(_of_the_engine, tmp_path / "ours", command.request).result()
    worker.done(worker.create("m"))
    for prompt, expected, metrics in zip(PROMPTS, passes, steps, strict=True):
        got: Any = worker.done(worker.a_pass("m", prompt))
        assert np.array_equal(got.logprobs_D[0], expected.logprobs_D[0])
        assert got.metrics == expected.metrics
        assert worker.done(worker.step("m")) == metrics
    worker.done(worker.save("m", (tmp_path / "theirs").as_uri()))
    for file in (tmp_path / "ours").iterdir():
        assert (tmp_path / "theirs" / file.name).read_bytes() == file.read_bytes()
    worker.done(worker.publish("m", "s"))
    assert worker.tokens(command) == tokens


def _of_the_engine(folder: Path, request: SampleRequest) -> tuple[list[Any], list[Mapping[str, float]], list[int]]:
    """What it gives for each pass, for each step, and for the sample; its state is in the folder."""
    engine = TinyEngine()
    engine.create_model("m", BASE, LORA)
    passes: list[Any] = []
    steps: list[Mapping[str, float]] = []
    for prompt in PROMPTS:
        passes += engine.forward_backward([forward_backward("m", prompt)])
        steps.append(engine.optim_step("m", ADAM))
    engine.save_state("m", folder, with_optimizer=True)
    engine.snapshot("m", "s")
    engine.submit_sample(request)
    while engine.has_samples():
        outputs: list[Any] = list(engine.step_samples())
    return passes, steps, outputs[-1].sequences[0].tokens_T.tolist()


@pytest.mark.parametrize("make_worker", ["thread"], indirect=True)
def test_it_says_what_it_computes_on_and_has_room_for(make_worker: MakeWorker) -> None:
    """Would catch a worker that seems full, or to lack the base model that it has just loaded."""
    worker = make_worker(TinyEngine)
    up = worker.events[0]
    assert isinstance(up, Up)
    assert up.description.startswith("cpu, ")
    assert up.description.endswith("float32")
    assert up.room.free_bytes > 2**20
    assert list(up.room.base_models) == [info.name for info in up.base_models]
    assert up.base_models[0].num_bytes > 2**20


@pytest.mark.slow
@pytest.mark.parametrize("make_worker", ["thread"], indirect=True)
def test_one_sample_does_not_wait_for_six_hundred_of_another(make_worker: MakeWorker) -> None:
    """Would catch a line of all tenants: it would wait until all but those that run at once are done."""
    worker = make_worker(TinyEngine)
    theirs = [worker.sample(account=ALICE, max_tokens=60, seed=seed) for seed in range(600)]
    worker.submit(*theirs)
    worker.until(lambda event: isinstance(event, Done))  # 256 run at once, and the rest waits in the sampler
    mine = worker.sample(account=BOB, max_tokens=3)
    assert isinstance(worker.run(mine), Done)
    assert len(worker.answered()) < 300


@pytest.mark.slow
@pytest.mark.parametrize("make_worker", ["thread"], indirect=True)
def test_one_step_does_not_wait_for_fifty_models_of_another(make_worker: MakeWorker) -> None:
    worker = make_worker(TinyEngine)
    for name, account in [*((f"m{index}", ALICE) for index in range(50)), ("mine", BOB)]:
        worker.done(worker.create(name, account))
    theirs = [command for index in range(50) for command in (worker.a_pass(f"m{index}"), worker.step(f"m{index}"))]
    mine = [worker.a_pass("mine", account=BOB), worker.step("mine", BOB)]
    worker.submit(*theirs, *mine)
    worker.answer(theirs[-1].command_id)
    answered = worker.answered()
    steps = [command.command_id for command in theirs[1::2]]
    ahead = [name for name in answered[: answered.index(mine[1].command_id)] if name in steps]
    assert len(ahead) <= 2


def _forget(worker: Driver, model_id: str) -> Forget:
    return Forget(command_id=worker.new_id(), account=ALICE, model_ids=(model_id,))
