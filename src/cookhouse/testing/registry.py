"""Suite that every registry of models passes."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from typing import Any

from cookhouse.errors import InputError
from cookhouse.registry import (
    Artifact,
    Descent,
    MetricBound,
    ModelRegistry,
    ModelStage,
    ModelVersion,
    NewModel,
    Query,
    ancestors,
    descendants,
)
from cookhouse.testing.contract import Contract, require

_TOGETHER = 4


class RegistryContract(Contract[ModelRegistry]):
    """A registry keeps what it is given, numbers it, and never lets lineage become a cycle."""

    @abstractmethod
    def make(self) -> ModelRegistry:
        """An empty registry."""

    def again(self, registry: ModelRegistry) -> ModelRegistry | None:
        """Another one over the same versions, as another process opens it; None where nothing outlives an object."""
        del registry
        return None

    def test_gives_back_what_it_was_given(self) -> None:
        registry = self.make()
        parent = registry.register(_new("base"))
        new = replace(
            _new("sums"),
            artifact=Artifact(path="tinker://run/weights/final", files="/runs/a/service/x", sha256="ab" * 32),
            sampler=Artifact(path="tinker://run/sampler_weights/final"),
            parent=parent.id,
            descent=Descent.DPO_TRAINED_FROM,
            metrics={"test/nll": 0.25, "test/accuracy": 1.0},
            headline="test/accuracy",
            recipe="supervised",
            run_folder="/runs/a",
            config_hash="cd" * 32,
            is_synthetic=True,
        )
        kept = registry.register(new)
        require(_facts(kept) == _facts(new), f"register gives the version back as it was given: {_facts(kept)}")
        require(_facts(registry.get(kept.id)) == _facts(new), "get gives what was registered")
        require(registry.get(kept.id) == kept, "get gives what register gave, its number and history too")

    def test_numbers_the_versions_of_each_name(self) -> None:
        registry = self.make()
        ids = [registry.register(_new(name, number)).id for number, name in enumerate(["sums", "sums", "other"])]
        require(ids == ["sums@1", "sums@2", "other@1"], f"versions count from 1 in each name, and these were {ids}")

    def test_gives_no_number_twice(self) -> None:
        registry = self.make()
        for number in range(2):
            registry.register(_new("sums", number))
        registry.delete("sums@2")
        again = registry.register(_new("sums", 2)).id
        require(again == "sums@3", f"the number of a deleted version is not given again; the next one was {again}")

    def test_finds_by_name_version_and_stage(self) -> None:
        registry = self.make()
        for number in range(3):
            registry.register(_new("sums", number))
        registry.promote("sums@1", ModelStage.STAGING)
        found = {name: registry.get(name).version for name in ("sums", "sums@2", "sums@staging", "sums@experiment")}
        wanted = {"sums": 3, "sums@2": 2, "sums@staging": 1, "sums@experiment": 3}
        require(found == wanted, f"a name is its highest version, a stage the last that came there; found {found}")

    def test_refuses_names_that_it_does_not_have(self) -> None:
        registry = self.make()
        registry.register(_new("sums"))
        for name in ("other", "sums@2", "sums@production", "sums@prod", "../sums", "sums@0", ""):
            _refused(f"get({name!r}) is refused where there is none", registry.get, name)

    def test_begins_as_an_experiment_and_keeps_the_history(self) -> None:
        registry = self.make()
        registry.register(_new("sums"))
        way = [ModelStage.STAGING, ModelStage.PRODUCTION, ModelStage.ARCHIVED, ModelStage.STAGING]
        for stage in way:
            registry.promote("sums@1", stage)
        registry.promote("sums@1", ModelStage.STAGING)
        history = registry.get("sums@1").history
        stages = [change.stage for change in history]
        require(stages == [ModelStage.EXPERIMENT, *way], f"history has every stage that it came to, once: {stages}")
        times = [change.at for change in history]
        require(times == sorted(times), "history has the times, in their order")

    def test_has_one_version_in_production(self) -> None:
        registry = self.make()
        for number in range(2):
            registry.register(_new("sums", number))
            registry.promote(f"sums@{number + 1}", ModelStage.PRODUCTION)
        first, second = registry.get("sums@1"), registry.get("sums@2")
        require(second.stage is ModelStage.PRODUCTION, "promote brings a version to production")
        require(first.stage is ModelStage.ARCHIVED, "the version that was in production is archived")
        require(len(first.history) == 3, "its history has that, too")
        require(registry.get("sums@production").id == "sums@2", "name@production is the new one")

    def test_answers_queries(self) -> None:
        registry = self.make()
        for number, accuracy in enumerate([0.5, 0.9, None]):
            metrics = {} if accuracy is None else {"accuracy": accuracy}
            registry.register(replace(_new("sums", number), metrics=metrics))
        registry.register(replace(_new("other"), metrics={"accuracy": 0.7}, parent="sums@1"))
        registry.promote("sums@1", ModelStage.STAGING)
        asked = {
            Query(): ["other@1", "sums@1", "sums@2", "sums@3"],
            Query(name="sums"): ["sums@1", "sums@2", "sums@3"],
            Query(name="nothing"): [],
            Query(stage=ModelStage.STAGING): ["sums@1"],
            Query(parent="sums@1"): ["other@1"],
            Query(artifact_path="tinker://sums-1/weights/final"): ["sums@2"],
            Query(bounds=(MetricBound(metric="accuracy", sign=">=", value=0.7),)): ["other@1", "sums@2"],
            Query(order_by="accuracy"): ["sums@2", "other@1", "sums@1", "sums@3"],
            Query(name="sums", order_by="accuracy", is_ascending=True): ["sums@1", "sums@2", "sums@3"],
        }
        for query, wanted in asked.items():
            found = [version.id for version in registry.find(query)]
            require(found == wanted, f"{query} is answered by {wanted}, not by {found}")

    def test_knows_ancestors_and_descendants(self) -> None:
        registry = self.make()
        for number, parent in enumerate([None, "sums@1", "sums@2", "sums@2"]):
            registry.register(replace(_new("sums", number), parent=parent))
        above = [version.id for version in ancestors(registry, "sums@4")]
        below = [version.id for version in descendants(registry, "sums@1")]
        require(above == ["sums@2", "sums@1"], f"the ancestors of sums@4 are its parent and its parent's; not {above}")
        require(below == ["sums@2", "sums@3", "sums@4"], f"what came from sums@1 is found; not {below}")

    def test_refuses_cycles(self) -> None:
        registry = self.make()
        for number, parent in enumerate([None, "sums@1", "sums@2"]):
            registry.register(replace(_new("sums", number), parent=parent))
        for parent in ("sums@1", "sums@3"):
            _refused(
                f"sums@1 cannot come from {parent}, which is or came from itself",
                registry.set_parent,
                "sums@1",
                parent,
                Descent.FINE_TUNED_FROM,
            )
        require(registry.get("sums@1").parent is None, "what is refused changes nothing")

    def test_sets_a_parent_later(self) -> None:
        registry = self.make()
        for name in ("base", "tuned"):
            registry.register(_new(name))
        registry.set_parent("tuned@1", "base@1", Descent.RL_TRAINED_FROM)
        tuned = registry.get("tuned@1")
        require((tuned.parent, tuned.descent) == ("base@1", Descent.RL_TRAINED_FROM), "set_parent is kept")
        registry.set_parent("tuned@1", None, Descent.FINE_TUNED_FROM)
        require(registry.get("tuned@1").parent is None, "a parent can be taken back")

    def test_refuses_the_same_weights_twice(self) -> None:
        registry = self.make()
        registry.register(_new("sums"))
        _refused("the same weights have one version of a name", registry.register, _new("sums"))
        registry.register(replace(_new("sums"), run_folder="/runs/a", name="other"))
        _refused(
            "they are the same weights whoever knows of which run",
            registry.register,
            replace(_new("sums"), run_folder="/runs/a"),
        )
        found = [version.id for version in registry.find(Query())]
        require(
            found == ["other@1", "sums@1"], f"another name may have them, and what was refused is not kept: {found}"
        )

    def test_refuses_what_cannot_be_registered(self) -> None:
        registry = self.make()
        good = _new("sums")
        bad = {
            "a name with a slash": replace(good, name="../sums"),
            "a name with an @": replace(good, name="sums@1"),
            "an empty name": replace(good, name=""),
            "no base model": replace(good, base_model=""),
            "no path": replace(good, artifact=Artifact(path="")),
            "a folder that depends on where one is": replace(good, artifact=Artifact(path="weights")),
            "a metric that is no number": replace(good, metrics={"nll": math.nan}),
            "a headline that is no metric": replace(good, headline="nll"),
            "a parent that is not there": replace(good, parent="base@1"),
        }
        for what, new in bad.items():
            _refused(f"{what} is refused", registry.register, new)
        require(not registry.find(Query()), "what is refused is not kept")

    def test_deletes(self) -> None:
        registry = self.make()
        registry.register(_new("base"))
        registry.register(replace(_new("tuned"), parent="base@1"))
        _refused("what others came from is not deleted unasked", registry.delete, "base@1")
        require(registry.delete("base@1", force=True).id == "base@1", "delete gives back what is gone")
        _refused("a deleted version is gone", registry.get, "base@1")
        require(registry.get("tuned@1").parent == "base@1", "what came from it keeps its name")
        require(not ancestors(registry, "tuned@1"), "lineage ends where a version is gone")
        registry.delete("tuned@1")
        require(not registry.find(Query()), "the last version can be deleted")

    def test_keeps_what_is_synthetic_marked(self) -> None:
        registry = self.make()
        registry.register(replace(_new("base"), is_synthetic=True))
        registry.register(replace(_new("tuned"), parent="base@1"))
        registry.register(_new("other"))
        registry.set_parent("other@1", "tuned@1", Descent.FINE_TUNED_FROM)
        marks = {version.id: version.is_synthetic for version in registry.find(Query())}
        require(all(marks.values()), f"what was made up stays marked, and so does what came from it: {marks}")

    def test_is_used_from_several_threads(self) -> None:
        registry = self.make()
        self._register_at_once([registry] * _TOGETHER)

    def test_is_opened_several_times(self) -> None:
        registry = self.make()
        others = [self.again(registry) for _ in range(_TOGETHER)]
        there = [other for other in others if other is not None]
        if there:
            self._register_at_once([registry, *there])
            last = registry.promote("sums@1", ModelStage.PRODUCTION)
            require(there[0].get("sums@production") == last, "what one changes, the others see")

    def _register_at_once(self, registries: list[ModelRegistry]) -> None:
        """The first makes the name, then all register under it at the same time."""
        made = [registries[0].register(_new("sums", 0)).id]
        failures: list[Exception] = []

        def register(registry: ModelRegistry, number: int) -> None:
            try:
                made.append(registry.register(_new("sums", number)).id)
            except Exception as error:  # of an adapter that may be anybody's
                failures.append(error)

        threads = [Thread(target=register, args=(each, number)) for number, each in enumerate(registries, start=1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        require(not failures, f"several may register at once; one failed: {failures[:1]}")
        wanted = {f"sums@{number}" for number in range(1, len(registries) + 2)}
        require(set(made) == wanted, f"what is registered at once has numbers of its own; these were {sorted(made)}")
        found = {version.id for version in registries[0].find(Query())}
        require(found == wanted, f"nothing that was registered at once is lost; there are {sorted(found)}")


def _new(name: str, number: int = 0) -> NewModel:
    return NewModel(name=name, base_model="m", artifact=Artifact(path=f"tinker://{name}-{number}/weights/final"))


def _facts(model: NewModel | ModelVersion) -> dict[str, Any]:
    return {name: getattr(model, name) for name in NewModel.__dataclass_fields__}


def _refused(promise: str, attempt: Callable[..., object], *arguments: object) -> None:
    try:
        attempt(*arguments)
    except InputError as error:
        require(bool(str(error)), f"{promise}, with a message")
        return
    require(False, promise)
