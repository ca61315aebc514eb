"""Grading of code by tests that run it in a sandbox.

What a test expects never enters the process that runs the solution: standard output and returned values leave that
process as bytes and plain data, and are compared here; test code with assertions runs in a process of its own, which
calls the solution in another. A solution that exits early, prints an answer, patches built-ins or returns objects with
an `__eq__` of their own can therefore only produce results, not a verdict.

Programs and functions run as the judges of their data sets run them: with the names of `harness.solution`, which
answers that complete a starter do not import, and with room for the output that a test expects.

What remains: a test that computes what it expects with the solution's own functions can be satisfied by wrong ones
(give the right ones as `setup`), and a test that passes for any value, such as `assert f(1) is not None`, passes for
any value. A solution can also read the arguments of a test, and guess.
"""

import dataclasses
import decimal
import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cookhouse.errors import InputError
from cookhouse.grading.comparison import is_same_text, is_same_value
from cookhouse.grading.harness import harness_modules
from cookhouse.grading.harness.plain import dumps
from cookhouse.grading.sandbox import (
    Execution,
    ExecutionOutcome,
    Limits,
    PairingSandbox,
    Program,
    Sandbox,
    default_sandbox,
)

_PYTHON = {"", "py", "python", "python3"}
_FENCE = re.compile(r"(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_DETAIL_CHARACTERS = 500
_MAX_DIGITS = 100_000
_SOLUTION = ("plain", "solution")
_ROOM = 4  # bytes of output for each that a test expects, beyond the limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class StdinTest:
    """The program reads `input` and must print `output`, up to white space at the ends of lines and of the whole.

    Words of a line that are numbers are compared by value: those written as integers exactly, those written as floats
    in `output` within 1e-6, absolute or relative.
    """

    input: str
    output: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class FunctionTest:
    """`entry_point(*arguments)`, a function or a method of class `Solution`, must equal `expected`; all plain data.

    A tuple equals a list of the same items, and a key its text: tests are mostly read from JSON, which has no tuples,
    and no keys but texts. An expected float allows an error of 1e-5, absolute or relative.
    """

    entry_point: str
    arguments: Sequence[Any]
    expected: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssertTest:
    """Test code that passes if nothing is raised, after `setup`, which is the test's own code as well.

    Calls reach the solution by value: a test cannot see that an argument was changed in place. `names` are taken from
    the solution even where `setup` or Python defines them. Names that nobody else defines are
    the solution's too, so tests of the form `assert f(1) == 2` need none.
    """

    code: str
    setup: str = ""
    names: Sequence[str] = ()


CodeTest = StdinTest | FunctionTest | AssertTest


class Verdict(enum.StrEnum):
    """Verdict on one test."""

    PASSED = "passed"
    WRONG = "wrong answer"
    FAILED = "failed"  # the solution ended otherwise; the detail says how
    NOT_RUN = "not run"  # an earlier test had failed


@dataclasses.dataclass(frozen=True, kw_only=True)
class TestResult:
    """One test's verdict; the detail is for people to read, and bounded."""

    __test__ = False  # not a test, whatever pytest thinks of the name

    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeGrade:
    """`reward` in [0, 1], and a result for each test in the tests' order."""

    reward: float
    results: tuple[TestResult, ...]

    @property
    def num_passed(self) -> int:
        return sum(result.verdict is Verdict.PASSED for result in self.results)

    @property
    def passed(self) -> bool:
        return self.num_passed == len(self.results)


async def grade_code(
    code: str,
    tests: Sequence[CodeTest],
    *,
    timeout_seconds: float = 6.0,
    reward: Literal["all", "fraction"] = "all",
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
) -> CodeGrade:
    """Run the tests in order, each in a fresh process with `timeout_seconds` of wall time.

    `reward="all"` is 1.0 if every test passes and else 0.0, and stops at the first failure; `"fraction"` runs all
    and is passed / tests. `limits` other than time default to those of `Limits`. Raises InputError without tests, or
    for an AssertTest in a sandbox that cannot pair programs; ServiceError if the sandbox itself fails.
    """
    if not tests:
        raise InputError("there are no tests; code without tests cannot be graded")
    chosen = sandbox if sandbox is not None else default_sandbox()
    bounds = dataclasses.replace(limits or Limits(), wall_seconds=timeout_seconds)
    results: list[TestResult] = []
    for test in tests:
        if reward == "all" and results and results[-1].verdict is not Verdict.PASSED:
            results += [TestResult(verdict=Verdict.NOT_RUN)] * (len(tests) - len(results))
            break
        results.append(await _run_test(code, test, bounds, chosen))
    num_passed = sum(result.verdict is Verdict.PASSED for result in results)
    value = num_passed / len(tests) if reward == "fraction" else float(num_passed == len(tests))
    return CodeGrade(reward=value, results=tuple(results))


def extract_code(answer: str) -> str | None:
    """The last closed fenced block of Python, or without a language, in a model's answer; None if there is none.

    Fences are those of CommonMark: three or more backticks or tildes, closed by as many or more of the same. The
    language is the first word after the fence, with a file name or attributes behind it, or the ending of a file name.
    """
    found: str | None = None
    fence: str | None = None
    is_python = False
    body: list[str] = []
    for line in answer.splitlines(keepends=True):
        mark = line.strip()
        if fence is None:
            if opening := _FENCE.fullmatch(mark):
                fence, is_python, body = opening["fence"], _is_python(opening["info"]), []
        elif len(mark) >= len(fence) and set(mark) == {fence[0]}:
            if is_python:
                found = "".join(body)
            fence = None
        else:
            body.append(line)
    return found


def _is_python(info: str) -> bool:
    """True if what follows a fence names Python, or no language: `python main.py`, `python:main.py`, `{.python}`."""
    words = info.lower().strip("{} ").split()
    first = words[0] if words else ""
    return first.endswith(".py") or "=" in first or re.split(r"[:,{]", first.removeprefix("."))[0] in _PYTHON


def parse_code_test(row: Mapping[str, Any]) -> CodeTest:
    """A test of the DeepCoder and LiveCodeBench data: `input`, `output`, `testtype` ("stdin" or "functional").

    The text of a stdin test may be a list of lines. A functional test has its arguments in `input`, one JSON value a
    line, the expected value as JSON in `output`, and the function's name in `metadata.func_name`. Raises InputError for
    anything else.
    """
    kind = row.get("testtype", "stdin")
    if kind == "stdin":
        return StdinTest(input=_lines(row["input"]), output=_lines(row["output"]))
    if kind != "functional":
        raise InputError(f"a test has testtype {kind!r}; stdin and functional are known")
    metadata = row.get("metadata") or {}
    name = (json.loads(metadata) if isinstance(metadata, str) else metadata).get("func_name")
    if not name:
        raise InputError("a functional test names no function; its metadata must have func_name")
    try:
        arguments = [read_json(line) for line in str(row["input"]).splitlines() if line.strip()]
        return FunctionTest(entry_point=name, arguments=arguments, expected=read_json(row["output"]))
    except ValueError as error:
        raise InputError(f"a functional test of {name} is not JSON: {error}") from error


def read_json(text: str) -> Any:
    """JSON with integers of any length up to `_MAX_DIGITS`; Python alone reads them up to 4,300."""
    return json.loads(text, parse_int=_whole)


def _lines(value: Any) -> str:
    """Text, or lines of it in a list, as APPS and TACO have them."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits):,} digits; at most {_MAX_DIGITS:,} are read")
    return int(decimal.Decimal(digits))


async def _run_test(code: str, test: CodeTest, limits: Limits, sandbox: Sandbox) -> TestResult:
    match test:
        case StdinTest():
            execution = await sandbox.run(_main(code, test, limits))
            return _failure(execution) or _compared(is_same_text(execution.text, test.output), execution)
        case FunctionTest():
            execution = await sandbox.run(_call(code, test, limits))
            return _failure(execution) or _compared(is_same_value(execution.text, test.expected), execution)
        case AssertTest():
            return await _run_assertions(code, test, limits, sandbox)


async def _run_assertions(code: str, test: AssertTest, limits: Limits, sandbox: Sandbox) -> TestResult:
    if not isinstance(sandbox, PairingSandbox):
        raise InputError(
            f"{type(sandbox).__name__} cannot run tests made of assertions, since what they expect would be readable "
            "for the solution; use LocalSandbox, or tests by standard input or function call"
        )
    # A second longer than the judge: it is the judge that says what took too long.
    longer = dataclasses.replace(limits, wall_seconds=limits.wall_seconds + 1.0)
    modules = harness_modules(*_SOLUTION, "judge")
    solution = Program(source=f"import harness.solution as s\ns.serve({code!r})\n", modules=modules, limits=longer)
    judging = f"import harness.judge as j\nj.judge({test.code!r}, {test.setup!r}, {list(test.names)!r})\n"
    execution, verdict = await sandbox.run_pair(solution, Program(source=judging, modules=modules, limits=limits))
    failed = _failure(verdict)
    if failed is not None:
        return failed
    error = _judged(verdict.stdout)
    if error is None:
        return TestResult(verdict=Verdict.PASSED, seconds=verdict.seconds)
    if execution.outcome not in (ExecutionOutcome.OK, ExecutionOutcome.STOPPED):
        return _failed(execution)
    kind = Verdict.WRONG if error.startswith("AssertionError") else Verdict.FAILED
    return TestResult(verdict=kind, detail=error, seconds=verdict.seconds)


def _judged(verdict: bytes) -> str | None:
    """Why a judge's tests failed, None if they passed. A test that ends the process leaves no verdict."""
    try:
        report = json.loads(verdict)
        # JSON can spell half a surrogate pair, which no file or terminal takes.
        return None if report["passed"] is True else str(report["error"]).encode(errors="replace").decode()
    except (ValueError, TypeError, KeyError):
        return "the tests ended without a verdict"


def _main(code: str, test: StdinTest, limits: Limits) -> Program:
    source = f"from harness.solution import run\nrun({code!r})\n"
    given = test.input.encode(errors="surrogatepass")
    limits = _with_room(limits, test.output)
    return Program(source=source, stdin=given, modules=harness_modules(*_SOLUTION), limits=limits)


def _call(code: str, test: FunctionTest, limits: Limits) -> Program:
    arguments = dumps(list(test.arguments))
    source = f"import harness.solution as s\ns.call({code!r}, {test.entry_point!r}, {arguments!r})\n"
    limits = _with_room(limits, dumps(test.expected))
    return Program(source=source, modules=harness_modules(*_SOLUTION), limits=limits)


def _with_room(limits: Limits, expected: str) -> Limits:
    """A test may expect more than the limit of output; what is right may be longer than that, such as with all digits
    of floats.
    """
    room = _ROOM * len(expected.encode(errors="surrogatepass"))
    return dataclasses.replace(limits, output_bytes=limits.output_bytes + room)


def _failure(execution: Execution) -> TestResult | None:
    """A result for an execution that did not end well."""
    if execution.outcome is ExecutionOutcome.OK and not execution.is_truncated:
        return None
    return _failed(execution)


def _failed(execution: Execution) -> TestResult:
    message = execution.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    detail = f"{execution.outcome}: {message}" if message else str(execution.outcome)
    return TestResult(verdict=Verdict.FAILED, detail=detail[:_DETAIL_CHARACTERS], seconds=execution.seconds)


def _compared(is_same: bool, execution: Execution) -> TestResult:
    if is_same:
        return TestResult(verdict=Verdict.PASSED, seconds=execution.seconds)
    detail = f"printed {execution.text[:_DETAIL_CHARACTERS]!r}"
    return TestResult(verdict=Verdict.WRONG, detail=detail, seconds=execution.seconds)
