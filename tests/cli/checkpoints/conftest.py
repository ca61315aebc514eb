"""A run directory with what a real server wrote."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import DATA, new_trainer, train
from tests.contract.conftest import make_torch_engine
from tests.server.hosting import KEY, Host, hosted


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run directory as a workflow leaves it: its server's state, and the checkpoints that it recorded."""

    folder: Path
    state_path: str
    sampler_path: str
    external_path: str
    logprobs: list[list[float]]


@contextmanager
def connected(state_dir: Path) -> Iterator[tuple[Host, tinker.ServiceClient]]:
    state_dir.mkdir(exist_ok=True)
    with (
        hosted(state_dir, make_torch_engine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        yield host, client


def logprobs_of(trainer: tinker.TrainingClient) -> list[list[float]]:
    outputs = trainer.forward(DATA, "cross_entropy").result().loss_fn_outputs
    return [list(output["logprobs"].data) for output in outputs]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    with connected(folder / "service") as (_, client):
        trainer = new_trainer(client)
        train(trainer, 2)
        state, sampler = trainer.save_state("000002"), trainer.save_weights_for_sampler("000002")
        external = trainer.save_weights_external("files")
        run = Run(
            folder=folder,
            state_path=state.result().path,
            sampler_path=sampler.result().path,
            external_path=external.result().path,
            logprobs=logprobs_of(trainer),
        )
    line = {"name": "000002", "epoch": 0, "batch": 2, "step": 2, "final": False}
    record = json.dumps({**line, "state_path": run.state_path, "sampler_path": run.sampler_path})
    (folder / "checkpoints.jsonl").write_text(record + "\n")
    (folder / "run.json").write_text('{"launches": [{"started_at": "2026-05-01T12:00:00+00:00"}]}')
    return run
