"""What MLflow's own client sees of our versions, and what we see of those that others made."""

import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from tests.registry.kit import new_model

from cookhouse.errors import InputError
from cookhouse.registry import ModelStage, Query, open_registry
from cookhouse.registry.mlflow import MlflowRegistry

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")  # of MLflow's store


def test_mlflow_knows_our_versions_by_its_own_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a registry that only we can read: its users ask for `models:/sums@production`."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    registry = open_registry("mlflow", {})
    for folder in "ab":
        version = registry.register(new_model(tmp_path / folder))
    registry.promote("sums@1", ModelStage.PRODUCTION)
    registry.promote("sums@2", ModelStage.PRODUCTION)
    registry.promote("sums@1", ModelStage.STAGING)
    client = MlflowClient(uri, uri)
    assert client.get_model_version("sums", "2").source == version.artifact.path
    assert [str(client.get_model_version_by_alias("sums", alias).version) for alias in ("production", "staging")] == [
        "2",
        "1",
    ]
    assert client.get_model_version("sums", "1").tags["stage"] == "staging"
    registry.promote("sums@2", ModelStage.ARCHIVED)
    assert dict(client.get_registered_model("sums").aliases).keys() == {"staging"}


def test_versions_of_others_are_left_alone(tmp_path: Path) -> None:
    """Would catch a registry that cannot be read because somebody else logs models to it."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(uri, uri)
    client.create_registered_model("theirs")
    client.create_model_version("theirs", source="s3://bucket/model")
    registry = MlflowRegistry(uri)
    assert registry.find(Query()) == []
    assert registry.register(new_model(tmp_path / "a", "theirs")).id == "theirs@2"


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"registry mlflow needs the package mlflow: .* install .*\[mlflow\]"):
        open_registry("mlflow", {})


def test_a_place_that_is_none_of_mlflows_is_named() -> None:
    with pytest.raises(InputError, match=r"the registry of MLflow cannot be used: .*; see MLFLOW_TRACKING_URI"):
        MlflowRegistry("nonsense://x").find(Query())
