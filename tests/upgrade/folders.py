"""The folders of `data`, unpacked, and what a server has to do with what was accepted and not run."""

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.server.settings import Settings
from tests.server.storage.store.test_schema import connected
from tests.upgrade.client import Client
from tests.upgrade.make_folders import DATA

SETTINGS = Settings(sweep_seconds=0.2, gap_seconds=0.01, restart_gap_seconds=0.01)


@dataclass(frozen=True, kw_only=True)
class Older:
    """A folder, and what its client knew when it was written."""

    folder: Path
    known: dict[str, Any]


VERSIONS = sorted(folder.name for folder in DATA.iterdir())
"""Of cookhouse, whose folders there are."""


def unpack(version: str, name: str, into: Path) -> Older:
    folder = into / name
    with tarfile.open(DATA / version / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return Older(folder=folder, known=json.loads((folder / "known.json").read_text()))


def weights(place: Path | str, folder: Path, path: str) -> Mapping[str, Any]:
    """What a checkpoint has a model start with, but for the seed of its adapter. `place` is the database, `folder` has
    the folders of checkpoints.
    """
    model_id, kind, name = path.removeprefix("tinker://").split("/")
    query = f"SELECT checkpoint_id FROM checkpoints WHERE model_id = '{model_id}' AND kind = '{kind}'"
    with connected(place) as connection:
        saved = folder / str(connection.exec_driver_sql(f"{query} AND name = '{name}'").scalar_one())
    if (file := saved / "state.json").exists():
        return {name: value for name, value in json.loads(file.read_text()).items() if name != "lora"}
    return {"adapter": (saved / "adapter.safetensors").read_bytes()}


def check_pending(client: Client, known: Mapping[str, Any], place: Path | str, folder: Path) -> None:
    """What was accepted ends as it does here behind the same weights, to the bit, and each request once. For `place`
    and `folder` see `weights`.
    """
    model_id, before = known["model_id"], known["paths"][0]
    reference = client.loaded(client.session(), 0, before)
    expected = [client.answer(each) for each in client.send_pending(reference, 1, "after")]
    assert [client.answer(request_id) for request_id in known["pending"]][:3] == expected[:3]
    assert client.send_pending(model_id, 8, "after") == known["pending"], "sent again by a client that kept trying"
    for kind in ("weights", "sampler_weights"):
        found, wanted = (weights(place, folder, f"tinker://{each}/{kind}/after") for each in (model_id, reference))
        assert found == wanted
    assert weights(place, folder, f"tinker://{model_id}/weights/after") != weights(place, folder, before)
    client.answer(client.send_pass(model_id, 13, [1, 2, 3]))
    client.answer(client.send_step(model_id, 14))
