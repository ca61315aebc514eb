"""Catches a model whose numbers depend on when its requests came, on what was sampled meanwhile, or on a restart."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine import Engine
from cookhouse.engine.contract import (
    Account,
    AdamStep,
    Command,
    Fetch,
    Forget,
    ForwardBackward,
    Load,
    LoraSpec,
    Lost,
    Pass,
    Sample,
    Step,
    TrainingDatum,
)
from cookhouse.engine.kernels.cpu import cpu_kernels
from cookhouse.engine.train.losses import LOSSES
from tests.engine.worker.conftest import MakeWorker
from tests.engine.worker.driver import ALICE, BASE, BOB, Driver
from tests.engine.worker.real_engine import TwoThreads, TwoThreadsBf16

ENGINES = pytest.mark.parametrize("engine", [TwoThreads, TwoThreadsBf16], ids=["fp32", "bf16"])
RANKS = pytest.mark.parametrize("rank", [4, 0], ids=["adapter", "full"])
ON_A_THREAD = pytest.mark.parametrize("make_worker", ["thread"], indirect=True)
PLAN: Sequence[Sequence[str]] = (["cross_entropy", "importance_sampling"], ["ppo", "dpo"], ["gspo", "cispo", "dro"])
"""The losses of the passes before each step; one more pass follows."""
Work = Callable[[str, Account], Command]
"""Makes a command for a model."""


def a_datum(chance: np.random.Generator, loss: str) -> TrainingDatum:
    length = int(chance.integers(3, 40))
    values = {
        "weights": chance.random(length),
        "logprobs": chance.normal(-7.0, 0.3, length),
        "advantages": chance.normal(size=length),
        "sequence_ratio_mask": chance.random(length) < 0.7,
        "reference_logprobs": chance.normal(-40.0, 1.0, 2),
    }
    inputs = {name: np.asarray(values[name], np.float32) for name in LOSSES[loss].inputs | LOSSES[loss].sums}
    targets_T = chance.integers(0, 2000, length)
    return TrainingDatum(
        tokens_T=chance.integers(0, 2000, length), loss_fn_inputs={"target_tokens": targets_T, **inputs}
    )


def the_work(driver: Driver, seed: int) -> list[Work]:
    """Of a run that uses several losses, and ends between a pass and its step."""
    chance = np.random.default_rng(seed)

    def a_pass(loss: str) -> Work:
        data_D = [a_datum(chance, loss) for _ in range(int(chance.choice([2, 6])))]

        def make(model_id: str, account: Account) -> Pass:
            request = ForwardBackward(model_id=model_id, data_D=data_D, loss_fn=loss)
            return Pass(command_id=driver.new_id(), account=account, model_id=model_id, request=request)

        return make

    def step(model_id: str, account: Account) -> Step:
        adam = AdamStep(learning_rate=1e-3, weight_decay=0.01, grad_clip_norm=10.0)
        return Step(command_id=driver.new_id(), account=account, model_id=model_id, adam=adam)

    return [work for losses in PLAN for work in (*map(a_pass, losses), step)] + [a_pass("cross_entropy")]


def create(driver: Driver, model_id: str, rank: int, account: Account = ALICE) -> None:
    driver.done(replace(driver.create(model_id, account), lora=LoraSpec(rank=rank, seed=3)))


def load(driver: Driver, model_id: str, rank: int, folder: Path) -> Load:
    return Load(
        command_id=driver.new_id(),
        account=ALICE,
        model_id=model_id,
        base_model=BASE,
        lora=LoraSpec(rank=rank, seed=3),
        url=folder.as_uri(),
        with_optimizer=True,
        with_gradient=True,
    )


def fetch(driver: Driver, snapshot_id: str, rank: int, folder: Path) -> Fetch:
    return Fetch(
        command_id=driver.new_id(),
        account=ALICE,
        snapshot_id=snapshot_id,
        base_model=BASE,
        lora=LoraSpec(rank=rank, seed=3),
        url=folder.as_uri(),
    )


def save(driver: Driver, model_id: str, folder: Path, account: Account = ALICE) -> None:
    driver.done(driver.save(model_id, folder.as_uri(), account=account, with_gradient=True))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def forget(driver: Driver, *model_ids: str) -> None:
    driver.submit(Forget(command_id=driver.new_id(), account=ALICE, model_ids=model_ids))


def one_by_one(driver: Driver, work: Sequence[Work], model_id: str, account: Account = ALICE) -> None:
    for make in work:
        driver.done(make(model_id, account))


@pytest.mark.slow
@ON_A_THREAD
@ENGINES
@RANKS
def test_when_its_requests_come_changes_nothing(
    make_worker: MakeWorker, engine: type[Engine], rank: int, tmp_path: Path
) -> None:
    """Would catch passes of a model that are put together when several wait, and rounding that follows the batch."""
    worker = make_worker(engine)
    work = the_work(worker, seed=1)
    create(worker, "m", rank)
    one_by_one(worker, work, "m")
    save(worker, "m", tmp_path / "one by one")
    forget(worker, "m")
    create(worker, "m", rank)
    commands = [make("m", ALICE) for make in work]
    between = [worker.sample(account=BOB, max_tokens=10), worker.publish("m", "s")]
    between += [worker.sample("s", seed=seed, max_tokens=10) for seed in range(3)]
    worker.submit(*commands[:4], *between, worker.save("m", (tmp_path / "between").as_uri()), *commands[4:])
    for command in commands:
        worker.answer(command.command_id)
    save(worker, "m", tmp_path / "at once")
    assert files(tmp_path / "at once") == files(tmp_path / "one by one")


@pytest.mark.slow
@ON_A_THREAD
@ENGINES
@RANKS
def test_a_worker_that_is_made_anew_goes_on_as_the_one_that_was_lost(
    make_worker: MakeWorker, engine: type[Engine], rank: int, tmp_path: Path
) -> None:
    """Would catch state of a model that lies outside what is saved."""
    lost = make_worker(engine)
    work = the_work(lost, seed=1)
    cut = 4  # between two passes and their step
    create(lost, "m", rank)
    one_by_one(lost, work[:cut], "m")
    save(lost, "m", tmp_path / "state")
    one_by_one(lost, work[cut:], "m")
    save(lost, "m", tmp_path / "undisturbed")
    new = make_worker(engine)
    new.submit(load(new, "m", rank, tmp_path / "state"), *(make("m", ALICE) for make in work[cut:]))
    save(new, "m", tmp_path / "restored")
    assert files(tmp_path / "restored") == files(tmp_path / "undisturbed")


@pytest.mark.slow
@pytest.mark.parametrize("make_worker", ["child"], indirect=True)
@ENGINES
def test_a_process_that_is_started_again_goes_on_as_the_one_that_was_killed(
    make_worker: MakeWorker, engine: type[Engine], tmp_path: Path
) -> None:
    """Would catch numbers that depend on what a process computed before."""
    lost = make_worker(engine)
    work = the_work(lost, seed=1)
    create(lost, "m", 4)
    one_by_one(lost, work[:4], "m")
    save(lost, "m", tmp_path / "state")
    one_by_one(lost, work[4:], "m")
    save(lost, "m", tmp_path / "undisturbed")
    lost.done(lost.publish("m", "s"))
    lost.done(lost.save_snapshot("s", (tmp_path / "published").as_uri()))
    expected = draw(lost, "s")
    lost.submit(*(make("m", ALICE) for make in work))
    os.kill(lost.worker.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    lost.until(lambda event: isinstance(event, Lost))
    new = make_worker(engine)
    new.submit(load(new, "m", 4, tmp_path / "state"), *(make("m", ALICE) for make in work[4:]))
    new.submit(new.publish("m", "replayed"), fetch(new, "fetched", 4, tmp_path / "published"))
    save(new, "m", tmp_path / "restored")
    assert files(tmp_path / "restored") == files(tmp_path / "undisturbed")
    assert draw(new, "replayed") == expected
    assert draw(new, "fetched") == expected


@ON_A_THREAD
@ENGINES
def test_models_in_turn_are_each_as_if_alone(make_worker: MakeWorker, engine: type[Engine], tmp_path: Path) -> None:
    """Would catch passes that run together though each was to run alone."""
    worker = make_worker(engine, deterministic=True, max_pass_tokens=10000)
    accounts = {"a": ALICE, "b": BOB, "c": BOB}
    work = {model_id: the_work(worker, seed) for seed, model_id in enumerate(accounts)}
    for model_id, account in accounts.items():
        create(worker, model_id, 4, account)
        one_by_one(worker, work[model_id], model_id, account)
        save(worker, model_id, tmp_path / f"{model_id} alone", account)
    forget(worker, *accounts)
    for model_id, account in accounts.items():
        create(worker, model_id, 4, account)
    together = [
        work[model_id][index](model_id, accounts[model_id]) for index in range(len(work["a"])) for model_id in "abc"
    ]
    worker.submit(*together)
    for model_id, account in accounts.items():
        save(worker, model_id, tmp_path / model_id, account)
        assert files(tmp_path / model_id) == files(tmp_path / f"{model_id} alone")


def draw(driver: Driver, snapshot_id: str, *, beside: Sequence[Sample] = ()) -> list[Any]:
    """Tokens and logprobs of some samples with named seeds, of prompts that begin alike: one by one, or at once with
    those `beside` them.
    """
    prompts = [np.arange(1, 40), np.arange(1, 43), np.array([7, 8])]
    settings: Sequence[dict[str, Any]] = ({"temperature": 1.0}, {"top_p": 0.9, "num_samples": 2}, {"temperature": 0.0})
    samples = [
        driver.sample(snapshot_id, seed=seed, prompt_T=prompt_T, max_tokens=12, **options)
        for seed, (prompt_T, options) in enumerate(zip(prompts, settings, strict=True))
    ]
    if beside:
        driver.submit(*samples, *beside)
        outputs: list[Any] = [driver.answer(sample.command_id) for sample in samples]
    else:
        outputs = [driver.run(sample) for sample in samples]
    return [
        (sequence.tokens_T.tolist(), sequence.logprobs_T.tolist())
        for answer in outputs
        for sequence in answer.output.sequences
    ]


@pytest.mark.slow
@ON_A_THREAD
@ENGINES
@RANKS
def test_what_was_published_is_sampled_alike_from_a_replay_and_from_files(
    make_worker: MakeWorker, engine: type[Engine], rank: int, tmp_path: Path
) -> None:
    """Would catch weights of samplers that a restart rounds, or lays out so that they are multiplied otherwise."""
    lost = make_worker(engine)
    work = the_work(lost, seed=1)
    create(lost, "m", rank)
    one_by_one(lost, work[:3], "m")
    lost.done(lost.publish("m", "s"))
    expected = draw(lost, "s")
    lost.done(lost.save_snapshot("s", (tmp_path / "published").as_uri()))
    replaying = make_worker(engine)
    create(replaying, "m", rank)
    replaying.submit(*(make("m", ALICE) for make in work[:3]), replaying.publish("m", "s"))
    assert draw(replaying, "s") == expected
    fetching = make_worker(engine)
    fetching.submit(fetch(fetching, "s", rank, tmp_path / "published"))
    assert draw(fetching, "s") == expected


@pytest.mark.skipif(cpu_kernels() is None, reason="no C++ compiler: rounding follows the batch")
@ON_A_THREAD
@ENGINES
def test_samples_are_the_same_whatever_runs_beside_them(make_worker: MakeWorker, engine: type[Engine]) -> None:
    """Would catch a retry that gets other tokens since the load is another, or since part of its prompt is known."""
    worker = make_worker(engine)
    for seed, model_id in enumerate(("m", "n")):
        create(worker, model_id, 4)
        one_by_one(worker, the_work(worker, seed)[:3], model_id)
        worker.done(worker.publish(model_id, f"s{model_id}"))
    alone = draw(worker, "sm")
    beside = [worker.sample(snapshot, BOB, seed=9, max_tokens=30) for snapshot in ("sn", None, "sm")]
    assert draw(worker, "sm", beside=beside) == alone
    assert draw(worker, "sm") == alone
