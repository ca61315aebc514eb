"""Calls that the SDK splits into several requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import datum, gradient_norm, new_trainer
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted

from cookhouse.server.settings import Settings

DATA = [datum([index, index + 1, index + 2], [1.0 + index / 7, 0.3]) for index in range(1, 8)]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[tinker.ServiceClient]:
    """Of a server that asks for two datums per request, and waits for those that come late on a busy machine."""
    with connected(tmp_path, Settings(fwdbwd_max_chunk_len=2, gap_seconds=10.0)) as client:
        yield client


@contextmanager
def connected(state_dir: Path, settings: Settings) -> Iterator[tinker.ServiceClient]:
    with (
        hosted(state_dir, FakeEngine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        yield client


def test_chunks_add_up_to_the_whole(client: tinker.ServiceClient) -> None:
    """Would catch chunks that are lost, run twice, reordered, or averaged."""
    trainer = new_trainer(client)
    singles = [trainer.forward([one], "cross_entropy").result() for one in DATA]
    whole = trainer.forward_backward(DATA, "cross_entropy").result()
    assert whole.metrics["loss:sum"] == pytest.approx(sum(one.metrics["loss:sum"] for one in singles))
    assert [list(output["logprobs"].data) for output in whole.loss_fn_outputs] == [
        list(one.loss_fn_outputs[0]["logprobs"].data) for one in singles
    ]
    norm = gradient_norm(trainer)
    for one in DATA:
        trainer.forward_backward([one], "cross_entropy").result()
    assert gradient_norm(trainer) == pytest.approx(norm)


def test_the_order_of_arrival_does_not_change_a_bit(client: tinker.ServiceClient) -> None:
    """Would catch sums that depend on which chunk came in first: the SDK sends them in parallel, the first one last."""
    norms = set()
    for _ in range(6):
        trainer = new_trainer(client)
        trainer.forward_backward(DATA, "cross_entropy").result()
        norms.add(gradient_norm(trainer))
    assert len(norms) == 1


def test_a_bad_chunk_does_not_wedge_the_client(client: tinker.ServiceClient) -> None:
    """Would catch a 4xx on one chunk of several, after which the SDK's client waits for ever."""
    trainer = new_trainer(client)
    with pytest.raises(tinker.RequestFailedError, match="-5"):
        trainer.forward_backward([*DATA, datum([3, -5])], "cross_entropy").result()
    gradient_norm(trainer)  # the good chunks have left theirs, as they would at any server
    trainer.forward_backward(DATA, "cross_entropy").result()
    assert gradient_norm(trainer) > 0


def test_a_gap_in_the_ids_does_not_wedge_the_run(tmp_path: Path) -> None:
    """Would catch a server that waits for a `seq_id` which the SDK reserved and never sent."""
    with connected(tmp_path, Settings(fwdbwd_max_chunk_len=2)) as client:
        trainer = new_trainer(client)
        for _ in range(2):
            trainer._get_request_id()
            trainer._turn_counter += 1
            trainer.forward_backward(DATA[:2], "cross_entropy").result(timeout=10)
        assert gradient_norm(trainer) > 0
