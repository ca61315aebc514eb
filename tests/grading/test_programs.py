"""Programs as the judges of their data sets run them: imports, endings, long output, long integers."""

import pytest

from cookhouse.grading import CodeTest, FunctionTest, StdinTest, Verdict, grade_code, parse_code_test
from cookhouse.grading.sandbox import Limits, LocalSandbox

pytestmark = pytest.mark.anyio

_LONG = "1" + "0" * 5000


def _prints(output: str, given: str = "") -> StdinTest:
    return StdinTest(input=given, output=output)


def _returns(expected: object, *arguments: object) -> FunctionTest:
    return FunctionTest(entry_point="f", arguments=list(arguments), expected=expected)


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("class Solution:\n    def f(self, a: List[int]) -> Optional[int]:\n        return a[0]", _returns(5, [5])),
        ("def f(a):\n    return [Counter(a)['x'], inf, lru_cache(None)(gcd)(4, 6)]",
         _returns([1, float("inf"), 2], "x")),
        ("def f(a):\n    return [pow(2, 5, 7), math.floor(1.5), heapq.heappop(a), datetime.date(1, 1, 1).year]",
         _returns([4, 1, 3, 1], [3])),
        ("from __future__ import annotations\nprint(Counter(input()).most_common(1), sys.stdin.read())",
         _prints("[('a', 2)] ", "aab\n")),
        ("print(int(np.array([1, 2]).sum()))", _prints("3")),
        ("def f(n): return 0 if n == 0 else 1 + f(n - 1)", _returns(20_000, 20_000)),
        ("def g(n): return 0 if n == 0 else 1 + g(n - 1)\nprint(g(20000))", _prints("20000")),
        ("class Solution:\n    def search(self, a): return a + 1",
         FunctionTest(entry_point="search", arguments=[1], expected=2)),
        ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A, __name__)",
         _prints("True __main__")),
        ("import sys\nprint('a')\nsys.stdout.close()", _prints("a")),
        ("import sys, io\nsys.stdout = io.StringIO()\nsys.__stdout__.write('a')", _prints("a")),
        ("out = open(1, 'w')\nout.write('a')", _prints("a")),
        ("import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint('a')", _prints("a")),
        ("class A:\n    def __del__(self): print(say())\ndef say(): return 'a'\nx = A()", _prints("a")),
        ("class A:\n    def __del__(self): print('a')\nx = A()\nx.me = x\nraise SystemExit", _prints("a")),
        ("import sys\nsys.stdout = None", _prints("")),
        ("import sys\nprint('x' * 3_000_000, file=sys.stderr)\nprint(1)", _prints("1")),
        ("def f():\n    print('x' * 3_000_000)\n    return 1", _returns(1)),
        ("print('7\\n' * 800_000)", _prints("7\n" * 800_000)),
        ("def f(): return 'x' * 1_300_000", _returns("x" * 1_300_000)),
        ("print(10 ** int(input()))", _prints(_LONG, "5000")),
        ("print(int(input()) % 7)", _prints(str(pow(10, 5000, 7)), _LONG)),
        ("def f(n): return {1: n + 1}", _returns({"1": 10**5000 + 1}, 10**5000)),
        ("def f(): return [0.1 + 0.2, (1 / 3,)]", _returns([0.3, [0.33333]])),
    ],
)  # fmt: skip
async def test_right_programs_pass(code: str, test: CodeTest, sandbox: LocalSandbox) -> None:
    """Catches a program that its data set's judge passes and that fails here."""
    grade = await grade_code(code, [test], sandbox=sandbox)
    assert grade.passed, grade.results[0].detail


@pytest.mark.parametrize(
    ("code", "test", "verdict"),
    [
        ("def search(a): return a", FunctionTest(entry_point="count", arguments=[1], expected=1), Verdict.FAILED),
        ("import sys\nwhile True: print('x' * 999, file=sys.stderr)", _prints("1"), Verdict.FAILED),
        ("while True: print('x' * 999)", _prints("1" * 5000), Verdict.FAILED),
        ("print(10 ** 5000 + 1)", _prints(_LONG), Verdict.WRONG),
        ("x = 1\nclass A:\n    def __del__(self): print(2)\ny = A()\nprint(x)", _prints("1"), Verdict.WRONG),
        ("import sys\nclass Closed:\n    def flush(self): raise OSError\nsys.stdout = Closed()", _prints(""),
         Verdict.FAILED),
        ("def f(): return 0.31", _returns(0.3), Verdict.WRONG),
    ],
)  # fmt: skip
async def test_wrong_programs_do_not(code: str, test: CodeTest, verdict: Verdict, sandbox: LocalSandbox) -> None:
    """Catches a given name that is called for the solution's own, and a flood that no limit ends."""
    limits = Limits(output_bytes=1 << 14)
    grade = await grade_code(code, [test], sandbox=sandbox, limits=limits)
    assert grade.results[0].verdict is verdict, grade


async def test_the_room_for_output_is_what_the_test_needs(sandbox: LocalSandbox) -> None:
    """Catches a limit lifted for all: beyond what is expected, output is bounded as before."""
    limits = Limits(output_bytes=1000)
    code = "print('x' * int(input()))"
    tests = [_prints("x" * 3000, "3000"), _prints("x" * 3000, "14000")]
    results = (await grade_code(code, tests, sandbox=sandbox, limits=limits)).results
    assert (results[0].verdict, results[1].detail) == (Verdict.PASSED, "output limit")


def test_lines_and_long_integers_of_a_row_are_read() -> None:
    """Catches APPS' lists of lines compared as Python would write them, and a test left out for its long integer."""
    assert parse_code_test({"input": ["1", "2"], "output": ["3"]}) == _prints("3", "1\n2")
    metadata = {"func_name": "f"}
    row = {"testtype": "functional", "input": _LONG, "output": f"[{_LONG}]", "metadata": metadata}
    assert parse_code_test(row) == _returns([10**5000], 10**5000)
