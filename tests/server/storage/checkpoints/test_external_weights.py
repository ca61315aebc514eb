"""Catches downloads that outlive their link, or that reach what they were not made for."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.conftest import OpenStore
from tests.server.storage.checkpoints.test_checkpoints import NEW

from cookhouse.errors import InputError
from cookhouse.server.refusals import GoneError, NotFoundError
from cookhouse.server.storage.checkpoints import external_weights
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.external_weights import ExternalWeights
from cookhouse.server.storage.store.rows import CheckpointRow

EXTERNAL = replace(NEW, kind="external_weights", has_optimizer=False)


@pytest.fixture
def checkpoints(tmp_path: Path, open_store: OpenStore) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", open_store(tmp_path / "server.db"))


@pytest.fixture
def weights(checkpoints: Checkpoints) -> ExternalWeights:
    return ExternalWeights(checkpoints)


def fill(folder: Path) -> None:
    folder.mkdir()
    (folder / "adapter_config.json").write_text("config")
    (folder / "a b?.safetensors").write_text("tensors")


def parts_of(route: str) -> tuple[str, int, str, str]:
    """Checkpoint id, expiry, signature and file name of a route."""
    prefix, checkpoint_id, expires_at, signature, name = route.split("/")
    assert prefix == "external_weights"
    return checkpoint_id, int(expires_at), signature, name


@pytest.fixture
def row(checkpoints: Checkpoints) -> CheckpointRow:
    return checkpoints.write(EXTERNAL, fill)


def test_a_link_leads_to_its_file(weights: ExternalWeights, row: CheckpointRow) -> None:
    links = weights.links(row)
    assert list(links.routes) == ["a b?.safetensors", "adapter_config.json"]
    assert weights.follow(*parts_of(links.routes["adapter_config.json"])).read_text() == "config"
    assert links.routes["a b?.safetensors"].endswith("/a%20b%3F.safetensors")
    checkpoint_id, expires_at, signature, _ = parts_of(links.routes["a b?.safetensors"])
    assert weights.follow(checkpoint_id, expires_at, signature, "a b?.safetensors").read_text() == "tensors"


def test_a_changed_link_leads_nowhere(
    weights: ExternalWeights, checkpoints: Checkpoints, row: CheckpointRow, tmp_path: Path
) -> None:
    """Would catch a signature that leaves out a part, and a name that climbs out of its folder."""
    other = checkpoints.write(replace(EXTERNAL, name="second"), fill)
    (tmp_path / "secret").write_text("secret")
    checkpoint_id, expires_at, signature, name = parts_of(weights.links(row).routes["adapter_config.json"])
    for changed in (
        (other.checkpoint_id, expires_at, signature, name),
        (checkpoint_id, expires_at + 1, signature, name),
        (checkpoint_id, expires_at, signature[:-1] + ("0" if signature[-1] != "0" else "1"), name),
        (checkpoint_id, expires_at, "", name),
        (checkpoint_id, expires_at, "é", name),
        (checkpoint_id, expires_at, signature, "a b?.safetensors"),
        (checkpoint_id, expires_at, signature, "../../secret"),
        ("..", expires_at, signature, "secret"),
    ):
        with pytest.raises(NotFoundError, match=r"no such download|deleted"):
            weights.follow(*changed)
    with pytest.raises(NotFoundError):
        ExternalWeights(checkpoints).follow(checkpoint_id, expires_at, signature, name)


def test_a_link_ends(weights: ExternalWeights, row: CheckpointRow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_weights, "LINK_SECONDS", -1)
    with pytest.raises(GoneError, match=r"expired; ask for a new one"):
        weights.follow(*parts_of(weights.links(row).routes["adapter_config.json"]))


def test_a_link_ends_with_its_checkpoint(weights: ExternalWeights, checkpoints: Checkpoints) -> None:
    row = checkpoints.write(replace(EXTERNAL, ttl_seconds=3600), fill)
    assert row.expires_at is not None
    soon = replace(row, expires_at=row.expires_at - 1800)
    links = weights.links(soon)
    assert links.expires_at == int(row.expires_at - 1800)
    checkpoints.delete(row)
    with pytest.raises(NotFoundError, match="has been deleted"):
        weights.follow(*parts_of(links.routes["adapter_config.json"]))


def test_other_checkpoints_have_no_links(weights: ExternalWeights, checkpoints: Checkpoints) -> None:
    """Would catch optimizer state that is served without a key."""
    with pytest.raises(InputError, match=r"holds no external weights; save some with save_weights_external"):
        weights.links(checkpoints.write(NEW, fill))
