"""The Modal adapter against a module of the same shape whose containers are processes of this machine."""

import asyncio
import sys
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cookhouse.errors import InputError, ServiceError
from cookhouse.grading import FunctionTest, StdinTest, grade_code
from cookhouse.grading.sandbox import ExecutionOutcome, Limits, ModalSandbox, Program

pytestmark = pytest.mark.anyio


class _Both:
    """Modal's methods have an asynchronous form as their attribute `aio`."""

    def __init__(self, function: Any) -> None:
        self.aio = function


class _Process:
    def __init__(self, process: asyncio.subprocess.Process, seconds: int) -> None:
        self._process = process
        self._seconds = seconds
        self.stdin = types.SimpleNamespace(
            write=process.stdin.write,  # type: ignore[union-attr]
            write_eof=process.stdin.write_eof,  # type: ignore[union-attr]
            drain=_Both(process.stdin.drain),  # type: ignore[union-attr]
        )
        self.stdout = self._lines(process.stdout)
        self.stderr = self._lines(process.stderr)
        self.wait = _Both(self._wait)

    async def _lines(self, stream: Any) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(self._seconds):
                while part := await stream.read(100):
                    yield part
        except TimeoutError:
            self._process.kill()

    async def _wait(self) -> int:
        status = await self._process.wait()
        return -1 if status == -9 else status


class _Container:
    def __init__(self, module: "FakeModal", options: dict[str, Any]) -> None:
        self._module = module
        self.options = options
        self.process: asyncio.subprocess.Process | None = None
        self.exec = _Both(self._exec)
        self.terminate = _Both(self._terminate)

    async def _exec(self, *command: str, timeout: int, text: bool) -> _Process:  # noqa: ASYNC109 - as Modal's
        assert not text
        pipe = asyncio.subprocess.PIPE
        arguments = [sys.executable if part == "python" else part for part in command]
        self.process = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe, stderr=pipe)
        self._module.started.set()
        return _Process(self.process, timeout)

    async def _terminate(self) -> None:
        self._module.open -= 1
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        if self.process is not None:
            await self.process.communicate()


class FakeModal(types.ModuleType):
    def __init__(self) -> None:
        super().__init__("modal")
        self.exception = types.SimpleNamespace(Error=type("Error", (Exception,), {}))
        self.App = types.SimpleNamespace(lookup=_Both(self._lookup))
        self.Sandbox = types.SimpleNamespace(create=_Both(self._create))
        self.open = 0
        self.containers: list[_Container] = []
        self.is_down = False
        self.started = asyncio.Event()

    async def _lookup(self, name: str, *, create_if_missing: bool) -> str:
        assert create_if_missing
        return name

    async def _create(self, **options: Any) -> _Container:
        if self.is_down:
            raise self.exception.Error("no capacity")
        self.open += 1
        self.containers.append(_Container(self, options))
        return self.containers[-1]


@pytest.fixture
def modal(monkeypatch: pytest.MonkeyPatch) -> FakeModal:
    fake = FakeModal()
    monkeypatch.setitem(sys.modules, "modal", fake)
    return fake


async def test_programs_run_and_grade(modal: FakeModal) -> None:
    """Catches a bootstrap that mixes source and input, and containers that stay open and cost money."""
    sandbox = ModalSandbox(app_name="tests")
    test = StdinTest(input="é 2\n", output="é 2")
    assert (await grade_code("print(input())", [test], sandbox=sandbox)).reward == 1.0
    call = FunctionTest(entry_point="f", arguments=[1], expected=[1, 2])
    assert (await grade_code("def f(x): return x, 2", [call], sandbox=sandbox)).reward == 1.0
    assert (await grade_code("def f(x): return x, 3", [call], sandbox=sandbox)).reward == 0.0
    assert modal.open == 0
    options = modal.containers[0].options
    assert options["block_network"] is True
    assert (options["app"], options["memory"]) == ("tests", (128, 1024))


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("1 / 0", ExecutionOutcome.NONZERO_EXIT),
        ("import time; time.sleep(60)", ExecutionOutcome.TIMEOUT),
        ("while True: print('x' * 99)", ExecutionOutcome.OUTPUT),
    ],
)
async def test_outcomes(source: str, outcome: ExecutionOutcome, modal: FakeModal) -> None:
    """Catches failures of a program that look like success, and a container left running."""
    program = Program(source=source, limits=Limits(wall_seconds=0.5, output_bytes=1000))
    assert (await ModalSandbox().run(program)).outcome is outcome
    assert modal.open == 0


async def test_a_cancelled_run_ends_its_container(modal: FakeModal) -> None:
    task = asyncio.create_task(ModalSandbox().run(Program(source="import time; time.sleep(60)")))
    await modal.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert modal.open == 0


async def test_modal_s_failure_is_an_error(modal: FakeModal) -> None:
    """Catches a service that is down whose programs all grade as wrong."""
    modal.is_down = True
    with pytest.raises(ServiceError, match="no capacity"):
        await ModalSandbox().run(Program(source="print(1)"))


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modal", None)
    with pytest.raises(InputError, match=r" install .*\[modal\]"):
        ModalSandbox()
