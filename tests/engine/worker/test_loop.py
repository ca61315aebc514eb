"""The loop itself, turn by turn: what waits for the disk holds up nobody else, and what is told when."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    Account,
    Command,
    Create,
    Done,
    Event,
    Failed,
    Fetch,
    Forget,
    Pass,
    Publish,
    Sample,
    SampleRequest,
    Save,
    Spent,
    WorkerOptions,
)
from cookhouse.engine.worker import Loop
from tests.engine.worker.driver import ALICE, BASE, BOB, LORA, forward_backward
from tests.server.fake_engine import VOCAB_SIZE, FakeEngine

SNAPSHOT_BYTES = VOCAB_SIZE * 8


class HeldWriter(Executor):
    """Writes when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":  # type: ignore[override]
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: call(*arguments)))
        return future

    def write(self) -> None:
        """All that waits."""
        waiting, self.waiting = self.waiting, []
        for future, call in waiting:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as error:
                    future.set_exception(error)


class Bench:
    """A loop over a fake engine, whose clock and disk a test moves."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.engine = FakeEngine()
        self.now = 0.0
        self.events: list[Event] = []
        self.writers: dict[str, HeldWriter] = {}
        settings: dict[str, Any] = {
            "worker": "w",
            "folder": folder,
            "max_snapshot_bytes": 2 * SNAPSHOT_BYTES,
            "max_snapshot_file_bytes": 2**30,
            "max_pass_tokens": 100,
            **changes,
        }
        self.loop = Loop(
            self.engine,
            WorkerOptions(**settings),
            tell=self.events.extend,
            clock=self._clock,
            make_writer=self._make_writer,
        )

    def _clock(self) -> float:
        """Each look takes a while."""
        self.now += 0.005
        return self.now

    def _make_writer(self, name: str) -> Executor:
        self.writers[name] = HeldWriter()
        return self.writers[name]

    def run(self, *commands: Command) -> None:
        """Submit, and take turns until there is nothing to do."""
        self.loop.submit(commands)
        while self.loop.turn():
            pass

    def answered(self) -> list[str]:
        return [event.command_id for event in self.events if isinstance(event, Done | Failed)]

    def answer(self, command_id: str) -> Done | Failed:
        (answer,) = [e for e in self.events if isinstance(e, Done | Failed) and e.command_id == command_id]
        return answer


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for writer in bench.writers.values():
        writer.write()


def create(model_id: str, account: Account = ALICE) -> Create:
    return Create(command_id=f"create-{model_id}", account=account, model_id=model_id, base_model=BASE, lora=LORA)


def publish(name: str, model_id: str = "m") -> Publish:
    return Publish(command_id=name, account=ALICE, model_id=model_id, snapshot_id=f"s-{name}")


def a_pass(name: str, model_id: str, account: Account = ALICE) -> Pass:
    return Pass(command_id=name, account=account, model_id=model_id, request=forward_backward(model_id, [1, 2]))


def a_sample(name: str, snapshot_id: str | None = None, account: Account = ALICE, max_tokens: int = 3) -> Sample:
    request = SampleRequest(
        request_id=name,
        base_model=BASE,
        snapshot_id=snapshot_id,
        prompt_T=np.array([1, 2, 3]),
        max_tokens=max_tokens,
        stop=[],
        seed=1,
    )
    return Sample(command_id=name, account=account, request=request)


def names(prefix: str, count: int) -> Sequence[str]:
    return [f"{prefix}{index}" for index in range(count)]


def test_what_is_published_waits_for_the_disk_and_nobody_else_does(bench: Bench) -> None:
    """Would catch memory that fills while a disk is slow, and every tenant that waits for it."""
    bench.run(create("m"), create("n", BOB))
    bench.run(*(publish(name) for name in names("p", 6)))
    assert bench.answered()[2:] == names("p", 3)  # one more than may be, which is on its way to a file
    bench.run(a_pass("pass", "n", BOB), a_sample("sample", account=BOB))
    assert bench.answered()[5:] == ["pass", "sample"]
    assert len(bench.engine._snapshots) == 3
    for _ in range(6):
        bench.writers["snapshots"].write()
        bench.run()
    assert bench.answered()[7:] == names("p", 6)[3:]
    assert len(bench.engine._snapshots) <= 3


def test_weights_to_be_fetched_wait_as_well(bench: Bench, tmp_path: Path) -> None:
    bench.run(create("m"), *(publish(name) for name in names("p", 3)))
    bench.engine.copy_snapshot("s-p0", is_durable=True)(tmp_path / "files")
    fetch = Fetch(
        command_id="f",
        account=BOB,
        snapshot_id="fetched",
        base_model=BASE,
        lora=LORA,
        url=(tmp_path / "files").as_uri(),
    )
    bench.run(fetch, a_sample("of it", "fetched", BOB), a_sample("of another", "s-p2"))
    assert bench.answered()[4:] == ["of another"]
    bench.writers["snapshots"].write()
    bench.run()
    assert bench.answered()[5:] == ["f", "of it"]


def test_copies_that_wait_for_the_disk_are_few(bench: Bench, tmp_path: Path) -> None:
    """Would catch a host's memory filled with copies of weights."""
    saves = [
        Save(command_id=name, account=ALICE, model_id="m", url=(tmp_path / name).as_uri(), form="state")
        for name in names("save", 6)
    ]
    bench.run(create("m"), create("n", BOB), *saves, a_pass("pass", "n", BOB))
    assert [call for call, _ in bench.engine.calls].count("copy_state") == 4
    assert bench.answered()[2:] == ["pass"]
    bench.writers["saves"].write()
    bench.run()
    assert bench.answered()[3:] == names("save", 4)
    bench.writers["saves"].write()
    bench.run()
    assert bench.answered()[7:] == ["save4", "save5"]


def test_a_save_that_has_not_begun_can_be_canceled(bench: Bench, tmp_path: Path) -> None:
    for form in ("state", "weights"):
        name: Any = form
        bench.run(
            create(f"m-{form}"),
            Save(command_id=form, account=ALICE, model_id=f"m-{form}", url=(tmp_path / form).as_uri(), form=name),
        )
        bench.run(Forget(command_id=f"forget-{form}", account=ALICE, command_ids=(form,)))
        bench.writers["saves"].write()
        bench.run()
        answer = bench.answer(form)
        assert isinstance(answer, Failed)
        assert answer.failure.kind == "canceled"
        assert not (tmp_path / form).exists()
    assert not bench.engine._snapshots


def test_a_folder_that_is_gone_ends_nothing(bench: Bench, tmp_path: Path) -> None:
    """Would catch a disk taken away, and with it every tenant's models."""
    bench.run(create("m"))
    shutil.rmtree(tmp_path)
    bench.run(*(publish(name) for name in names("p", 5)))
    answer = bench.answer("p4")
    assert isinstance(answer, Failed)
    assert answer.failure.kind == "service"
    assert "cannot be put away" in answer.failure.message
    bench.run(a_pass("pass", "m"), a_sample("sample", "s-p0"))
    assert bench.answered()[6:] == ["pass", "sample"]
    assert isinstance(bench.answer("sample"), Done)
    tmp_path.mkdir()


def test_what_a_long_sample_costs_is_told_meanwhile(bench: Bench) -> None:
    """Would catch an hour's sample that costs nothing until it ends, and a flood of small sums."""
    bench.run(a_sample("s", max_tokens=100))
    *meanwhile, last = [event for event in bench.events if isinstance(event, Spent)]
    assert {amount.kind for event in meanwhile for amount in event.amounts} == {"engine_seconds"}
    assert {amount.kind for amount in last.amounts} == {"engine_seconds", "prompt_tokens", "sampled_tokens"}
    assert 5 <= len(meanwhile) <= bench.now / 0.1


def test_time_is_put_down_to_those_that_it_served(bench: Bench) -> None:
    """Would catch a tenant that pays for others' passes in a shared turn."""

    class Slow(FakeEngine):
        def forward_backward(engine, requests: Any) -> Any:  # noqa: N805
            bench.now += 3.0
            return super().forward_backward(requests)

    bench.run(create("m"), create("n", BOB))
    bench.engine.__class__ = Slow
    longer = Pass(command_id="longer", account=BOB, model_id="n", request=forward_backward("n", [1, 2, 3, 4]))
    bench.events.clear()
    bench.run(a_pass("shorter", "m"), longer)
    spent = {a.account: a.amount for e in bench.events if isinstance(e, Spent) for a in e.amounts if "sec" in a.kind}
    assert spent == {ALICE: pytest.approx(1.0, abs=0.01), BOB: pytest.approx(2.0, abs=0.01)}
    assert isinstance(bench.events[0], Spent)


def test_what_ends_the_process_passes_through(bench: Bench) -> None:
    """Would catch an interrupt that is told to a tenant as the failure of a pass."""

    class Ends(FakeEngine):
        def forward_backward(engine, requests: Any) -> Any:  # noqa: ARG002, N805
            raise KeyboardInterrupt

    bench.run(create("m"))
    bench.engine.__class__ = Ends
    bench.loop.submit([a_pass("p", "m")])
    with pytest.raises(KeyboardInterrupt):
        bench.loop.turn()
