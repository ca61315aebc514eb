"""Grading of code: the kinds of tests, their results, rewards and refusals."""

import pytest

from cookhouse.errors import InputError
from cookhouse.grading import (
    AssertTest,
    CodeTest,
    FunctionTest,
    StdinTest,
    Verdict,
    extract_code,
    grade_code,
    parse_code_test,
)
from cookhouse.grading.sandbox import Execution, ExecutionOutcome, LocalSandbox, Program

pytestmark = pytest.mark.anyio

_DOUBLE = "def double(n):\n    return n * 2\n"


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("print(int(input()) * 2)", StdinTest(input="4\n", output="8\n")),
        ("print('a  ')\nprint(1.0)", StdinTest(input="", output="a\n1")),
        (_DOUBLE, FunctionTest(entry_point="double", arguments=[[1, 2]], expected=[1, 2, 1, 2])),
        (
            "class Solution:\n    def f(self, a, b): return (a, b)",
            FunctionTest(entry_point="f", arguments=[1, 2], expected=[1, 2]),
        ),
        ("def f(): return {(1, 2): {3}}", FunctionTest(entry_point="f", arguments=[], expected={(1, 2): {3}})),
        ("print('noise')\ndef f(): print('noise'); return 1", FunctionTest(entry_point="f", arguments=[], expected=1)),
        (_DOUBLE, AssertTest(code="assert double(4) == 8")),
        (
            "def double(n): raise ValueError('no')",
            AssertTest(code="try:\n    double(1)\n    raise SystemExit\nexcept ValueError: pass"),
        ),
        ("def sum(a, b): return a - b", AssertTest(code="assert sum(3, 1) == 2", names=["sum"])),
        ("import math\ndef f(): return math.pi", AssertTest(code="assert f() == math.pi")),
        ("def f(): return (n for n in range(3))", AssertTest(code="assert list(f()) == [0, 1, 2]")),
        ("def f(x): return x + 1", AssertTest(code="assert f(helper()) == 3", setup="def helper(): return 2")),
        (
            "class Node:\n    def __init__(self, x): self.x, self.next = x, None\n"
            "def total(n): return n.x + (total(n.next) if n.next else 0)",
            AssertTest(code="a = Node(1)\na.next = Node(2)\nassert total(a) == 3 and a.next.x == 2"),
        ),
    ],
)
async def test_right_code_passes(code: str, test: CodeTest, sandbox: LocalSandbox) -> None:
    """Catches a kind of test, or of value, that the harness does not carry to the solution and back."""
    grade = await grade_code(code, [test], sandbox=sandbox)
    assert grade.reward == 1.0, grade


@pytest.mark.parametrize(
    ("code", "test", "verdict", "detail"),
    [
        ("print(5)", StdinTest(input="", output="6"), Verdict.WRONG, "printed '5"),
        ("print(1, 2)", StdinTest(input="", output="1\n2"), Verdict.WRONG, "printed"),
        ("print(8)\n1 / 0", StdinTest(input="", output="8"), Verdict.FAILED, "nonzero exit: ZeroDivisionError"),
        ("while True: pass", StdinTest(input="", output="8"), Verdict.FAILED, "timeout"),
        (_DOUBLE, FunctionTest(entry_point="double", arguments=[4], expected=9), Verdict.WRONG, "printed '8'"),
        (_DOUBLE, FunctionTest(entry_point="triple", arguments=[4], expected=8), Verdict.FAILED, "AttributeError"),
        (
            "def f(): return object()",
            FunctionTest(entry_point="f", arguments=[], expected=1),
            Verdict.FAILED,
            "not plain data",
        ),
        ("def f(): return [1]", FunctionTest(entry_point="f", arguments=[], expected={1}), Verdict.WRONG, "printed"),
        (_DOUBLE, AssertTest(code="assert double(4) == 9"), Verdict.WRONG, "AssertionError"),
        (_DOUBLE, AssertTest(code="assert triple(4) == 9"), Verdict.FAILED, "NameError"),
        ("def double(n): return n / 0", AssertTest(code="assert double(4) == 8"), Verdict.FAILED, "ZeroDivisionError"),
        ("def double(n): return", AssertTest(code="assert double(4) == 8"), Verdict.WRONG, "AssertionError"),
        ("def double(n):\n    while True: pass", AssertTest(code="assert double(4) == 8"), Verdict.FAILED, "timeout"),
        (
            "import os\ndef double(n): os._exit(0)",
            AssertTest(code="assert double(4) == 8"),
            Verdict.FAILED,
            "process ended",
        ),
        (_DOUBLE, AssertTest(code="import os\nos._exit(0)"), Verdict.FAILED, "without a verdict"),
        (
            "def double(n): raise ValueError('\\ud800')",
            AssertTest(code="assert double(4) == 8"),
            Verdict.FAILED,
            "ValueError: ?",
        ),
    ],
)
async def test_wrong_code_fails_with_its_reason(
    code: str, test: CodeTest, verdict: Verdict, detail: str, sandbox: LocalSandbox
) -> None:
    """Catches a failure that passes, or whose reason a person cannot see."""
    grade = await grade_code(code, [test], sandbox=sandbox, timeout_seconds=1.0)
    assert grade.reward == 0.0
    assert grade.results[0].verdict is verdict, grade
    assert detail in grade.results[0].detail


async def test_reward_of_all_stops_at_the_first_failure(sandbox: LocalSandbox) -> None:
    """Catches time spent on tests that can no longer change the reward, and results that lose their place."""
    tests = [StdinTest(input=str(n), output=str(2 * n if n != 2 else 0)) for n in range(1, 5)]
    grade = await grade_code("print(int(input()) * 2)", tests, sandbox=sandbox)
    assert grade.reward == 0.0
    verdicts = [result.verdict for result in grade.results]
    assert verdicts == [Verdict.PASSED, Verdict.WRONG, Verdict.NOT_RUN, Verdict.NOT_RUN]
    assert not grade.passed


async def test_reward_of_a_fraction_runs_all(sandbox: LocalSandbox) -> None:
    """Catches a rate over the tests that ran instead of all."""
    tests = [StdinTest(input=str(n), output=str(2 * n if n != 2 else 0)) for n in range(1, 5)]
    grade = await grade_code("print(int(input()) * 2)", tests, reward="fraction", sandbox=sandbox)
    assert (grade.reward, grade.num_passed) == (0.75, 3)


async def test_code_without_tests_is_refused(sandbox: LocalSandbox) -> None:
    """Catches the reward of 1.0 that `all` of nothing would be."""
    with pytest.raises(InputError, match="no tests"):
        await grade_code("pass", [], sandbox=sandbox)


async def test_assertions_need_a_sandbox_that_pairs() -> None:
    """Catches assertions, with what they expect, that run beside the solution because a sandbox can do no better."""
    with pytest.raises(InputError, match="LocalSandbox"):
        await grade_code("pass", [AssertTest(code="assert True")], sandbox=_Unpaired())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("a\n```\nx = 1\n```\nb\n```py\ny = 2\n```\nend", "y = 2\n"),
        ("```python\nx = 1\n```\n```bash\nls\n```", "x = 1\n"),
        ("```Python\nx = '''\na\n'''\n```", "x = '''\na\n'''\n"),
        ("  ```python\n  x = 1\n  ```", "  x = 1\n"),
        ("```python\nx = 1", None),
        ("x = 1", None),
        ("```python\n```", ""),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("~~~\n```\nx = 1\n~~~", "```\nx = 1\n"),
        ('````python\ns = """\n```\n"""\n````', 's = """\n```\n"""\n'),
        ("```python\nx = 1\n`````", "x = 1\n"),
        ("````python\nx = 1\n```", None),
        ("```python\nx = 1\n~~~", None),
        ("```python main.py\nx = 1\n```", "x = 1\n"),
        ("```python:src/main.py\nx = 1\n```", "x = 1\n"),
        ("```main.py\nx = 1\n```", "x = 1\n"),
        ('```py title="a b" {1,3}\nx = 1\n```', "x = 1\n"),
        ("```{.python .numberLines}\nx = 1\n```", "x = 1\n"),
        ("```python{1,3}\nx = 1\n```", "x = 1\n"),
        ('```title="main"\nx = 1\n```', "x = 1\n"),
        ("```bash run.sh\nls\n```", None),
        ("```pycon\n>>> 1\n```", None),
        ("```x = 1``` is inline\n```\ny = 2\n```", "y = 2\n"),
        ("", None),
    ],
)
def test_extract_code(answer: str, code: str | None) -> None:
    """Catches an answer cut off at its length limit that is graded, or an example graded in place of the answer."""
    assert extract_code(answer) == code


def test_deep_coder_tests_are_read() -> None:
    """Catches rows of the data set whose arguments or expected value come out as text."""
    assert parse_code_test({"input": "1\n", "output": "2\n", "testtype": "stdin"}) == StdinTest(
        input="1\n", output="2\n"
    )
    row = {"input": '[1, 2]\n"a"', "output": "[[1]]", "testtype": "functional", "metadata": {"func_name": "f"}}
    assert parse_code_test(row) == FunctionTest(entry_point="f", arguments=[[1, 2], "a"], expected=[[1]])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"testtype": "other"}, "other"),
        ({"testtype": "functional", "input": "1", "output": "1"}, "func_name"),
        ({"testtype": "functional", "input": "1", "output": "?", "metadata": {"func_name": "f"}}, "not JSON"),
    ],
)
def test_other_tests_are_refused(row: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_code_test(row)


class _Unpaired:
    async def run(self, program: Program) -> Execution:
        return Execution(outcome=ExecutionOutcome.OK, status=0, stdout=program.stdin, stderr=b"", seconds=0.0)

    async def aclose(self) -> None:
        return None
