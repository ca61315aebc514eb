"""Port of a registry of models."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from cookhouse.registry.model import Descent, ModelStage, ModelVersion, NewModel
from cookhouse.registry.query import Query


@runtime_checkable
class ModelRegistry(Protocol):
    """Versions of models, by name. Blocking; may be called from any thread, and by several processes at once.

    Every method raises InputError where there is no such version, and where the registry cannot be read or written.
    """

    def register(self, new: NewModel) -> ModelVersion:
        """Keep a new version, as an experiment, and number it: two that are registered at once differ.

        What descends from something synthetic is marked so, too.

        Raises:
            InputError: the name has a version of these very weights; the parent is not there; or a field cannot be
                what it is.
        """

    def get(self, name: str) -> ModelVersion:
        """The version of `name@version`; of `name@stage`, the last that came there; of `name`, the highest."""

    def find(self, query: Query) -> Sequence[ModelVersion]:
        """The versions that are asked for; maybe none."""

    def promote(self, name: str, stage: ModelStage) -> ModelVersion:
        """Bring a version to a stage, further or back; its history grows by that. To where it is, nothing happens.

        The version that was in production before is archived.
        """

    def set_parent(self, name: str, parent: str | None, descent: Descent) -> ModelVersion:
        """Say where a version came from, once that is known; None: from its base model.

        Raises:
            InputError: the parent is not there, or descends from the version: lineage has no cycles.
        """

    def delete(self, name: str, *, force: bool = False) -> ModelVersion:
        """Forget a version, and return it. Its weights are left as they are.

        Raises:
            InputError: others descend from it; with `force` they keep its name as their parent's.
        """
