"""One way to name whatever a user brings."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cookhouse.errors import InputError, UnknownNameError, with_article
from cookhouse.evals import EVALUATORS
from cookhouse.evals.inspect import task_spec
from cookhouse.naming import OpenSet, load


def numbers() -> OpenSet[int]:
    return OpenSet(
        kind="number",
        group="cookhouse.test_numbers",
        builtin={"most": "sys:maxsize", "text": "os:sep"},
        check=lambda thing: thing if isinstance(thing, int) else None,
        wants="a number is an int",
    )


@pytest.fixture(autouse=True)
def _imports_are_put_back() -> Iterator[None]:
    modules, paths = dict(sys.modules), list(sys.path)
    yield
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
    sys.path[:] = paths


def test_builtin_names_are_imported_when_asked_for() -> None:
    assert numbers().find("most") == sys.maxsize


def test_a_name_can_be_added_once() -> None:
    some = numbers()
    some.register("two", 2)
    assert some.find("two") == 2
    assert some.names() == ("most", "text", "two")
    for taken in ("two", "most"):
        with pytest.raises(InputError, match="there is a number"):
            some.register(taken, 3)
    with pytest.raises(InputError, match="has no colon"):
        some.register("a:b", 3)
    assert "two" not in numbers().names(), "sets share nothing"


def test_modules_and_files_are_named_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numbers_beside.py").write_text("SEVEN = 7\n")
    (tmp_path / "numbers_of_mine.py").write_text(
        "from numbers_beside import SEVEN\nclass Inner:\n    EIGHT = SEVEN + 1\n"
    )
    monkeypatch.chdir(tmp_path)
    assert numbers().find("numbers_of_mine:SEVEN") == 7
    assert numbers().find("numbers_of_mine.py:Inner.EIGHT") == 8
    assert numbers().find(f"{tmp_path}/numbers_of_mine.py:SEVEN") == 7


def test_a_file_is_one_module_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches two copies of a class, of which one is no instance of the other."""
    (tmp_path / "mine.py").write_text("class Thing: ...\n")
    monkeypatch.chdir(tmp_path)
    assert load("mine.py:Thing") is load(f"{tmp_path}/mine.py:Thing")


def test_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "json.py").write_text(f"VALUE = {value}\n")
    assert [load(f"{tmp_path}/{folder}/json.py:VALUE") for folder in "ab"] == [1, 2]
    assert sys.modules["json"].__name__ == "json"


def test_a_broken_file_can_be_mended_and_named_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("VALUE = 1 / 0\n")
    with pytest.raises(InputError, match=r"mine\.py cannot be imported: ZeroDivisionError"):
        load(f"{path}:VALUE")
    path.write_text("VALUE = 1\n")
    assert load(f"{path}:VALUE") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mots", "unknown number 'mots'; did you mean most"),
        ("text", "text is of type str, not a number; a number is an int"),
        ("no_such_module_here:X", "there is no module 'no_such_module_here'"),
        ("nowhere.py:X", "there is no file nowhere.py"),
        ("nowhere.py", "names no object; write module:NAME or file.py:NAME"),
        ("sys:maxsiez", "unknown name in sys 'maxsiez'; did you mean maxsize"),
    ],
)
def test_what_cannot_be_found_is_named(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        numbers().find(name)


def test_an_unknown_name_says_how_to_bring_one() -> None:
    with pytest.raises(UnknownNameError, match=r"file\.py:NAME, module:NAME"):
        numbers().find("zzz")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: 1, "too many positional arguments"),
        (lambda first: first, "too many positional arguments"),
        (lambda first, second, third: 1, "missing a required argument: 'third'"),  # noqa: ARG005
        (lambda first, second, *, third: 1, "missing a required"),  # noqa: ARG005
    ],
)
def test_a_function_is_refused_that_could_not_be_called(function: Callable[..., object], reason: str) -> None:
    """Would otherwise end a run in the middle, with a raw TypeError."""
    functions: OpenSet[Callable[..., object]] = OpenSet(
        kind="function",
        group="cookhouse.test_functions",
        builtin={},
        check=lambda thing: thing if callable(thing) else None,
        wants="a function takes two things",
        takes=("one", "other"),
    )
    functions.register("mine", function)
    with pytest.raises(InputError, match=rf"^mine\(.*\) cannot be called with \(one, other\): {reason}.*; a function"):
        functions.find("mine")
    functions.register("good", lambda first, *more, third=3: (first, more, third))
    functions.find("good")
    functions.register("of C", max)
    assert functions.find("of C") is max, "nobody can tell what it takes"


@pytest.mark.parametrize(
    ("noun", "said"),
    [("evaluator", "an evaluator"), ("recipe", "a recipe"), ("int", "an int"), ("user", "a user"), ("UUID", "a UUID")],
)
def test_a_noun_has_its_article(noun: str, said: str) -> None:
    assert with_article(noun) == said


def test_an_evaluator_is_refused_with_its_article() -> None:
    with pytest.raises(InputError, match="cannot name an evaluator"):
        EVALUATORS.register("a:b", EVALUATORS.find("arithmetic"))


def test_a_task_of_inspect_has_one_spelling(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def made(settings, renderer): return None\n")
    assert EVALUATORS.find(f"{tmp_path}/mine.py@made") is EVALUATORS.find(f"{tmp_path}/mine.py:made")
    assert (task_spec("a/b.py:sums"), task_spec("b.py@sums"), task_spec("package/task")) == (
        "a/b.py@sums",
        "b.py@sums",
        "package/task",
    )
