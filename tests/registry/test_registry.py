"""Names of registries and of registered models; lineage that somebody else's hand made a circle."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.registry.kit import new_model

from cookhouse.errors import InputError
from cookhouse.registry import (
    Artifact,
    ModelStage,
    NewModel,
    NoopRegistry,
    Query,
    ancestors,
    descendants,
    from_document,
    names_registered_model,
    open_registry,
    parse_bound,
    to_document,
)
from cookhouse.registry.sqlite import SqliteRegistry


def test_a_registry_is_a_file_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for where, environ, file in (
        (None, {}, "runs/registry.db"),
        (None, {"COOKHOUSE_REGISTRY": "mine.sqlite"}, "mine.sqlite"),
        ("other.db", {"COOKHOUSE_REGISTRY": "mine.sqlite"}, "other.db"),
    ):
        opened = open_registry(where, environ)
        assert isinstance(opened, SqliteRegistry)
        assert opened.file == tmp_path / file
    (tmp_path / "noop").mkdir()  # a folder of the name hides nothing
    assert isinstance(open_registry("noop", {}), NoopRegistry)
    (tmp_path / "mine.py").write_text("from cookhouse.registry import NoopRegistry\nclass Mine(NoopRegistry): pass\n")
    assert type(open_registry("mine.py:Mine", {})).__name__ == "Mine"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("mlfow", "unknown registry 'mlfow'; did you mean mlflow?"),
        (
            "runs/registry",
            r"'runs/registry' is no registry; name a file that ends in \.db, \.sqlite, \.sqlite3, or mlf",
        ),
        ("builtins:dict", "builtins:dict made a dict; a registry is opened by a function of no arguments, or a class"),
        ("operator:neg", "registry operator:neg cannot be made: TypeError: "),
    ],
)
def test_what_is_no_registry_is_refused(where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_registry(where, {})


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("sums@1", True),
        ("sums@production", True),
        ("sums", False),
        ("sums@prod", False),
        ("sums@01", False),
        ("org/model@1", False),
        ("tinker://x@1", False),
        ("@1", False),
        ("a@b@1", False),
    ],
)
def test_a_reference_is_told_from_paths_and_base_models(text: str, is_one: bool) -> None:
    assert names_registered_model(text) is is_one


@pytest.mark.parametrize(("text", "fits"), [("x>=1", True), ("x<= 1", True), ("x>1", False), ("x < 1", False)])
def test_a_bound_is_read_as_it_is_written(tmp_path: Path, text: str, fits: bool) -> None:
    version = NoopRegistry().register(replace(new_model(tmp_path / "a"), metrics={"x": 1.0}))
    assert Query(bounds=(parse_bound(text),)).fits(version) is fits


@pytest.mark.parametrize("text", ["accuracy", "accuracy=0.9", ">=1", "accuracy>=high", "accuracy>=nan", ""])
def test_what_bounds_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="bounds no metric; write a metric, one of >=, <=, >, <, and a number"):
        parse_bound(text)


def test_a_circle_that_is_there_is_named_and_not_followed(tmp_path: Path) -> None:
    """Would catch a command that hangs on a registry that others have written to."""
    registry = NoopRegistry()
    for name, parent in (("a", None), ("b", "a@1"), ("c", "b@1")):
        registry.register(new_model(tmp_path / name, name, parent))
    with registry.writing() as versions:
        versions.change(replace(registry._kept.by_id["a@1"], parent="c@1"))
    with pytest.raises(InputError, match="the lineage of b@1 comes back to b@1: mend it with another parent"):
        ancestors(registry, "b@1")
    assert [version.id for version in descendants(registry, "b@1")] == ["c@1", "a@1"]


def test_a_version_of_a_later_cookhouse_is_read(tmp_path: Path) -> None:
    version = NoopRegistry().register(new_model(tmp_path / "a"))
    text = to_document(version)
    assert from_document(text) == version
    assert from_document(text[:-1] + ', "license": "mit"}') == version


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x"}', '{"artifact": 1}'])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a row of the registry is no version of a model"):
        from_document(text)


def test_weights_at_one_path_of_two_runs_are_two_versions() -> None:
    # Catches a second run that is refused, since a service of its own began to count anew, or a run that is two.
    registry = NoopRegistry()
    first = NewModel(name="sums", base_model="m", artifact=Artifact(path="tinker://made/1"), run_folder="/runs/a")
    second = replace(first, run_folder="/runs/b")
    assert [registry.register(each).id for each in (first, second)] == ["sums@1", "sums@2"]
    for again in (second, replace(first, run_folder=None)):
        with pytest.raises(InputError, match="tinker://made/1 is registered already, as sums@"):
            registry.register(again)
    assert registry.register(replace(first, artifact=Artifact(path="tinker://made/2"))).id == "sums@3"


def test_what_depends_on_where_one_stands_is_refused() -> None:
    # Catches a run directory that nobody finds from another directory.
    registry, good = NoopRegistry(), NewModel(name="sums", base_model="m", artifact=Artifact(path="tinker://made/1"))
    with pytest.raises(InputError, match="run directory runs/a of a version of sums is no absolute path"):
        registry.register(replace(good, run_folder="runs/a"))
    with pytest.raises(InputError, match="has files without their sha256"):
        registry.register(replace(good, artifact=replace(good.artifact, files="/runs/a/weights")))
    assert registry.find(Query()) == []


def test_a_stage_is_the_last_that_came_there(tmp_path: Path) -> None:
    registry = NoopRegistry()
    for folder in "ab":
        registry.register(new_model(tmp_path / folder))
    for name in ("sums@2", "sums@1"):
        registry.promote(name, ModelStage.STAGING)
    assert registry.get("sums@staging").id == "sums@1"
    with pytest.raises(InputError, match="no version of sums is in production: sums@1 is in staging, sums@2 is in sta"):
        registry.get("sums@production")
