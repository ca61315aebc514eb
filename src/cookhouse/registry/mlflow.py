"""A registry kept by MLflow, by its own client: a version there for each of ours, and the same numbers."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cookhouse.errors import InputError
from cookhouse.extras import install_command
from cookhouse.registry.base import BaseRegistry, RegistryReader, RegistryWriter
from cookhouse.registry.document import from_document, to_document
from cookhouse.registry.model import ModelStage, ModelVersion, NewModel, StageChange

if TYPE_CHECKING:
    from mlflow import MlflowClient

_DOCUMENT = "cookhouse.version"
"""Tag of a version in MLflow that holds all that we know of it; versions without it are of other systems."""
_STAGE = "stage"
_ALIASED = (ModelStage.STAGING, ModelStage.PRODUCTION)
"""Stages that are also aliases, so that `models:/NAME@production` names the same version to MLflow's users."""


class MlflowRegistry(BaseRegistry):
    """Registry in MLflow. Changes of several processes at once are kept one by one: MLflow has no transactions."""

    def __init__(self, uri: str | None = None) -> None:
        """Open the registry at a URI; default: the one that MLflow itself takes, from its environment variables.

        Raises:
            InputError: `mlflow` is not installed, or there is no registry.
        """
        try:
            from mlflow import MlflowClient
        except ModuleNotFoundError as error:
            raise InputError(f"registry mlflow needs the package mlflow: {install_command('mlflow')}") from error
        with _errors():
            self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    @contextlib.contextmanager
    def reading(self) -> Iterator[RegistryReader]:
        with _errors():
            yield _Versions(self._client)

    @contextlib.contextmanager
    def writing(self) -> Iterator[RegistryWriter]:
        with _errors():
            yield _Versions(self._client)


class _Versions:
    def __init__(self, client: "MlflowClient") -> None:
        self._client = client

    def every(self, name: str | None = None) -> Sequence[ModelVersion]:
        wanted = None if name is None else f"name='{name}'"  # a name has no quotes
        found, token = [], None
        while True:
            page: Any = self._client.search_model_versions(wanted, page_token=token)
            found += [from_document(each.tags[_DOCUMENT]) for each in page if _DOCUMENT in each.tags]
            token = page.token
            if not token:
                return found

    def add(self, new: NewModel, first: StageChange) -> ModelVersion:
        self._make_name(new.name)
        made = self._client.create_model_version(new.name, source=new.artifact.path)
        version = ModelVersion.of(new, int(made.version), first)
        self.change(version)
        return version

    def change(self, version: ModelVersion) -> None:
        name, number = version.name, str(version.version)
        self._client.set_model_version_tag(name, number, _DOCUMENT, to_document(version))
        self._client.set_model_version_tag(name, number, _STAGE, version.stage.value)
        aliases = self._client.get_registered_model(name).aliases
        for stage in _ALIASED:
            if version.stage is stage:
                self._client.set_registered_model_alias(name, stage.value, number)
            elif str(aliases.get(stage.value)) == number:
                self._client.delete_registered_model_alias(name, stage.value)

    def remove(self, version: ModelVersion) -> None:
        self._client.delete_model_version(version.name, str(version.version))

    def _make_name(self, name: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:  # the latter of its own store, while that is made
        reason = " ".join(str(error).split())[:500]
        raise InputError(f"the registry of MLflow cannot be used: {reason}; see MLFLOW_TRACKING_URI") from error
