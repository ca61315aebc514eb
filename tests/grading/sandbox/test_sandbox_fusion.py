"""The SandboxFusion adapter against a server of its own kind: same fields, same statuses."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cookhouse.errors import InputError, ServiceError
from cookhouse.grading import FunctionTest, StdinTest, grade_code
from cookhouse.grading.sandbox import ExecutionOutcome, Limits, Program, SandboxFusion, sandbox_fusion

pytestmark = pytest.mark.anyio


class FakeServer(ThreadingHTTPServer):
    """Answers `/run_code` by running the code; `broken` is the number of requests that it refuses first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.broken = 0
        self.fixed: dict[str, Any] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        if self.fixed is not None:
            return self.fixed
        command = [sys.executable, "-c", request["code"]]
        try:
            run = subprocess.run(
                command,
                input=request["stdin"],
                capture_output=True,
                text=True,
                timeout=request["run_timeout"],
                check=False,
            )
        except subprocess.TimeoutExpired:
            result = {
                "status": "TimeLimitExceeded",
                "execution_time": 1.0,
                "return_code": None,
                "stdout": "",
                "stderr": "",
            }
            return {"status": "Failed", "message": "", "run_result": result}
        result = {"status": "Finished", "execution_time": 0.1, "return_code": run.returncode, "stdout": run.stdout}
        status = "Success" if run.returncode == 0 else "Failed"
        return {"status": status, "message": "", "run_result": result | {"stderr": run.stderr}, "files": {}}


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.broken -= 1
        refused = self.server.broken >= 0
        status = 404 if self.path != "/run_code" else 503 if refused else 200
        self.send_response(status)
        self.end_headers()
        if status == 200:
            self.wfile.write(json.dumps(self.server.answer(json.loads(body))).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_fusion, "_FIRST_PAUSE_SECONDS", 0.001)


@contextlib.asynccontextmanager
async def _connected(url: str) -> Any:
    sandbox = SandboxFusion(url, max_concurrency=2)
    yield sandbox
    await sandbox.aclose()


async def test_programs_run_and_grade(server: FakeServer) -> None:
    """Catches fields that the server does not know, and a harness that does not travel as text."""
    async with _connected(server.url + "/") as sandbox:
        tests = [StdinTest(input="2", output="4"), StdinTest(input="3", output="6")]
        assert (await grade_code("print(int(input()) * 2)", tests, sandbox=sandbox)).reward == 1.0
        call = FunctionTest(entry_point="f", arguments=[[1, 2]], expected=[[1, 2], 2])
        assert (await grade_code("def f(x): print('noise'); return x, len(x)", [call], sandbox=sandbox)).reward == 1.0
        assert (await grade_code("def f(x): return x", [call], sandbox=sandbox)).reward == 0.0
    assert set(server.requests[0]) == {"language", "code", "stdin", "run_timeout", "memory_limit_MB"}


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("1 / 0", ExecutionOutcome.NONZERO_EXIT),
        ("while True: pass", ExecutionOutcome.TIMEOUT),
        ("print('x' * 5000)", ExecutionOutcome.OUTPUT),
    ],
)
async def test_outcomes(source: str, outcome: ExecutionOutcome, server: FakeServer) -> None:
    """Catches failures of a program that look like its success, or like the server's failure."""
    limits = Limits(wall_seconds=0.5, output_bytes=1000)
    async with _connected(server.url) as sandbox:
        execution = await sandbox.run(Program(source=source, limits=limits))
    assert execution.outcome is outcome
    assert len(execution.stdout) <= 1000


async def test_a_server_that_recovers_is_asked_again(server: FakeServer) -> None:
    """Catches a run that ends because its sandbox was overloaded for a moment."""
    server.broken = 3
    async with _connected(server.url) as sandbox:
        assert (await sandbox.run(Program(source="print(1)"))).stdout == b"1\n"


async def test_a_server_that_fails_is_an_error(server: FakeServer) -> None:
    """Catches a broken server whose programs all grade as wrong."""
    server.fixed = {"status": "SandboxError", "message": "out of disk", "run_result": None}
    async with _connected(server.url) as sandbox:
        with pytest.raises(ServiceError, match="out of disk"):
            await sandbox.run(Program(source="print(1)"))
    async with _connected(server.url + "/elsewhere") as sandbox:
        with pytest.raises(ServiceError, match="404"):
            await sandbox.run(Program(source="print(1)"))
    async with _connected("http://127.0.0.1:9") as sandbox:
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9"):
            await sandbox.run(Program(source="print(1)"))


async def test_output_without_end_is_the_program_s_failure(server: FakeServer) -> None:
    """Catches a program whose output fills the memory of the process that trains, or ends its run."""
    printed = "x" * 200_000
    result = {"status": "Finished", "execution_time": 0.1, "return_code": 0, "stdout": printed, "stderr": ""}
    server.fixed = {"status": "Success", "message": "", "run_result": result}
    async with _connected(server.url) as sandbox:
        execution = await sandbox.run(Program(source="", limits=Limits(output_bytes=1000)))
    assert (execution.outcome, execution.stdout, execution.is_truncated) == (ExecutionOutcome.OUTPUT, b"", True)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [1],
        {"run_result": {"return_code": 0, "stdout": ["a"]}},
        {"run_result": {"return_code": 0, "execution_time": [1]}},
        {"run_result": {"return_code": 0, "execution_time": "soon"}},
    ],
)
async def test_an_answer_of_another_form_is_the_server_s_failure(answer: Any, server: FakeServer) -> None:
    """Catches a traceback in place of an error that names the server."""
    server.answer = lambda _: answer  # type: ignore[method-assign, assignment]
    async with _connected(server.url) as sandbox:
        with pytest.raises(ServiceError, match="did not answer"):
            await sandbox.run(Program(source="print(1)"))


def test_the_address_is_checked() -> None:
    with pytest.raises(InputError, match="localhost:8080"):
        SandboxFusion("localhost:8080")
