"""What is called from Python with something of another type is refused by name. Catches an AttributeError from inside,
and an argument that nobody looked at.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

import cookhouse
from cookhouse.callables.arguments import checked, fits
from cookhouse.errors import InputError
from cookhouse.telemetry import Metric
from cookhouse.training import FakeService, TrainingClient

FACE: Any = cookhouse


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, 3], [True, 1.5, "1", None]),
        (float, [0, 1.5], [True, "1.5"]),
        (bool, [True], [1, "true"]),
        (str | Path | None, ["a", Path("a"), None], [b"a", 3]),
        (Literal["less", "more"], ["less"], ["up", 1]),
        (Sequence[str], [["a"], ("a",), []], ["ab", [1], {"a": 1}, 3]),
        (Iterable[Any], [[1], iter([1]), {1}], ["ab", {"a": 1}, 3]),
        (Mapping[str, Any], [{"a": 1}, {}], [{1: 2}, [("a", 1)], None]),
        (tuple[str, ...], [("a",)], [["a"], (1,)]),
        (Callable[[int], int], [len], [3]),
        (TrainingClient, [], [None, object(), "client"]),
        (Any, [None, 3], []),
    ],
)
def test_a_value_fits_a_type_or_not(hint: Any, good: Sequence[Any], bad: Sequence[Any]) -> None:
    assert [value for value in good if not fits(value, hint)] == []
    assert [value for value in bad if fits(value, hint)] == []


def test_a_name_for_type_checkers_alone_takes_anything() -> None:
    @checked
    def called(thing: "Nothing[int] | None", other: int = 0) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return thing, other

    assert called(3) == (3, 0)
    with pytest.raises(InputError, match=r"other of .*called is 'x'; it must be a whole number"):
        called(3, other="x")  # type: ignore[arg-type]


WRONG: tuple[Any, ...] = (3, b"rl", [], {}, object())


@pytest.mark.parametrize("wrong", [*WRONG, None])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda wrong: FACE.run(wrong, {}), "recipe"),
        (lambda wrong: asyncio.run(FACE.run_async(wrong, {})), "recipe"),
        (lambda wrong: FACE.dry_run(wrong), "recipe"),
        (lambda wrong: FACE.find_recipe(wrong), "name"),
        (lambda wrong: FACE.sweep(wrong), "recipe"),
        (lambda wrong: FACE.read_experiment(wrong), "path"),
        (lambda wrong: FACE.write_experiment(wrong, "x.yaml"), "experiment"),
        (lambda wrong: FACE.get_last_checkpoint(wrong), "log_path"),
        (lambda wrong: FACE.save_checkpoint(wrong, "a", "b", {}), "training_client"),
        (lambda wrong: FACE.declare_metric(wrong), "metric"),
        (lambda wrong: FACE.scope(wrong), "title"),
        (lambda wrong: FACE.message_environments(wrong, len, train=[]), "settings"),
        (lambda wrong: FACE.supervised_workflow(wrong), "config"),
        (lambda wrong: FACE.reinforcement_workflow(wrong, len), "config"),
        (lambda wrong: FACE.Recipe(name=wrong, description="", config_class=object, workflow=len), "name"),
        (lambda wrong: FACE.Stage(name=wrong, function=len), "name"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Callable[[Any], Any], name: str, wrong: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name} of .* is .*; it must be "):
        call(wrong)


@pytest.mark.parametrize("config", [*WRONG[:3], object(), {1: 2}, {None: 1}, {("a",): 1}])
def test_a_config_that_is_none_is_refused(config: Any) -> None:
    with pytest.raises(InputError, match=r"(config|setting).* (of|is) "):
        FACE.dry_run("supervised", config)


@pytest.mark.parametrize("given", [{"max_steps": "x"}, {"max_steps": True}, {"seed": 1.5}, {"sinks": None}])
def test_a_config_made_directly_is_checked_as_well(given: Mapping[str, Any]) -> None:
    config = FACE.find_recipe("supervised").config_class(**given)
    with pytest.raises(InputError, match=rf"{next(iter(given))}=.* does not fit; .* takes a"):
        FACE.dry_run("supervised", config)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"settings": 3}, "settings of sweep"),
        ({"settings": {1: 2}}, "settings of sweep"),
        ({"grid": [1]}, "grid of sweep"),
        ({"grid": {"seed": 3}}, "grid of sweep"),
        ({"grid": {"seed": "ab"}}, "grid of sweep"),
        ({"grid": {1: [3]}}, "grid of sweep"),
        ({"configs": {"seed": 1}}, "configs of sweep"),
        ({"configs": [3]}, "configs of sweep"),
        ({"jobs": 1.5}, "jobs of sweep"),
        ({"direction": "up"}, "direction of sweep"),
        ({"adapters": 3}, "adapters of sweep"),
    ],
)
def test_arguments_of_a_sweep_are_checked(given: Mapping[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        FACE.sweep("supervised", **{"grid": {"seed": [1, 2]}, **given})


@pytest.mark.parametrize(
    ("adapters", "said"),
    [
        (3, "adapters of dry_run is 3; it must be .*Adapters"),
        ([], "adapters of dry_run"),
        ({"sinks": 3}, "Adapters has 3 for sinks"),
        ({"sink": []}, "unknown port 'sink'; did you mean sinks"),
        ({1: []}, "adapters of dry_run"),
        ("noob", "unknown bundle of adapters 'noob'; did you mean noop"),
        (cookhouse.Adapters(name=3), "Adapters has 3 for name"),  # type: ignore[arg-type]
    ],
)
def test_adapters_that_are_none_are_refused(adapters: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        FACE.dry_run("supervised", {}, adapters=adapters)


def test_adapters_may_be_a_map_or_a_name(tmp_path: Path) -> None:
    """Catches the way of other systems, `adapters={"service": ...}`, ending in an AttributeError."""
    rows = [{"prompt": "say 1", "completion": "1"}] * 4
    config = {"dataset_path": rows, "batch_size": 2, "log_path": str(tmp_path / "run")}
    given = {"service": FakeService().connect, "sinks": []}
    assert FACE.run("supervised", config, adapters=given).summary.num_steps == 2
    plan = FACE.dry_run("supervised", {**config, "log_path": str(tmp_path / "other")}, adapters="noop")
    assert plan.config["batch_size"] == 2


def test_metrics_are_still_declared() -> None:
    assert FACE.declare_metric(Metric("mine/of_arguments")) == "mine/of_arguments"
