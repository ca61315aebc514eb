"""Losses over pairs that the service computes, against `forward_backward_custom`, over the wire."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import tinker
from tests.algorithms.pairs.kit import pairs
from tests.contract.calls import BASE_MODEL
from tests.contract.conftest import PRECISIONS, make_torch_engine
from tests.engine.numerics import WAYS, WAYS_OF_SUMS
from tests.server.hosting import KEY, Host, hosted
from tinker.lib.public_interfaces.training_client import _estimate_datum_bytes_count_proto

from cookhouse.algorithms.pairs.calls import whole_pairs
from cookhouse.algorithms.pairs.dataset import interleaved
from cookhouse.algorithms.pairs.objective import FusedPairLoss, pair_objective
from cookhouse.algorithms.pairs.reference import NoReference, PairPayload, ServiceReference, sums_by_forward
from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.server.settings import Settings
from cookhouse.settings import PairLossSettings
from cookhouse.training import PairLossOffer, TinkerServiceClient, TrainingClient, Work
from cookhouse.training.loop.objective import answered_datums
from cookhouse.weights.checkpoints import Cursor

pytestmark = pytest.mark.anyio

SOME = pairs(5)


@pytest.fixture(scope="module", params=PRECISIONS)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def host(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server that takes two pairs of the longer ones in a request, and whose SDK would split after three datums."""
    settings = Settings(fwdbwd_max_chunk_len=5)
    with hosted(tmp_path_factory.mktemp("state"), partial(make_torch_engine, engine), settings) as host:
        yield host


@pytest.fixture
async def service(host: Host) -> AsyncIterator[TinkerServiceClient]:
    service = TinkerServiceClient(base_url=host.url, api_key=KEY)
    yield service
    await service.close("success")


async def _trained(
    client: TrainingClient, reference: NoReference | ServiceReference, settings: PairLossSettings, offer: PairLossOffer
) -> tuple[dict[str, Any], float, list[float]]:
    """Metrics of one step, the norm of its gradient, and the logprobs of all tokens of its answers."""
    payload = PairPayload(reference_P2=await reference.logprobs(SOME))
    work = Work(cursor=Cursor(), data_D=interleaved(SOME), payload=payload)
    objective = pair_objective(settings, offer, with_logprobs=True)
    output = await objective.loss.submit(client, work)
    metrics = dict(objective.metrics([(work, output)]))
    adam = await client.optim_step(tinker.AdamParams(learning_rate=1e-3))
    assert adam.metrics is not None
    logprobs: list[float] = []
    for datum, fields in answered_datums([(work, output)]):
        logprobs_T = objective.logprobs(datum, fields)
        assert logprobs_T is not None
        logprobs += logprobs_T[datum.loss_fn_inputs["weights"].to_numpy() > 0].tolist()
    return metrics, adam.metrics["grad_norm"], logprobs


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"label_smoothing": 0.1},
        {"pair_loss": "dpo_norm"},
        {"pair_loss": "ipo"},
        {"pair_loss": "orpo"},
        {"pair_loss": "simpo"},
    ],
    ids=str,
)
async def test_the_service_computes_what_the_client_would(
    service: TinkerServiceClient, engine: str, given: dict[str, Any]
) -> None:
    # Catches pairs that a split parts, a mean over the pairs of one request in place of the batch, and options that do
    # not arrive. The second step has weights that are not the reference's.
    settings = PairLossSettings(**given)
    offer = await service.pair_losses()
    reference: NoReference | ServiceReference = NoReference()
    if PAIR_LOSSES.find(settings.pair_loss).needs_reference:
        base = await service.create_lora_training_client(BASE_MODEL, rank=1, seed=0)
        reference = ServiceReference(sums_by_forward(base, offer))
    found = []
    for each in (offer, PairLossOffer()):
        client = await service.create_lora_training_client(BASE_MODEL, rank=8, seed=1)
        found += [[await _trained(client, reference, settings, each) for _ in range(2)]]
    assert isinstance(pair_objective(settings, offer).loss, FusedPairLoss)
    near = WAYS_OF_SUMS[engine]
    first, first_other = found[0][0][0], found[1][0][0]
    if not isinstance(reference, NoReference):
        # At first each pair is a tie, as the service computes both sides in the same way; the client's may round apart.
        assert first["train/margin"] == pytest.approx(0.0, abs=1e-12)
        first_other["train/accuracy"] = first["train/accuracy"]
    for (one, norm, logprobs), (other, expected, expected_logprobs) in zip(*found, strict=True):
        assert one.keys() == other.keys()
        # A square is off by twice the part by which what it is of is off.
        values_near = 2 * near if settings.pair_loss == "ipo" else near
        assert list(one.values()) == pytest.approx(list(other.values()), rel=values_near, abs=near)
        # A learned pair's gradient falls as exp(-margin): what a margin is off by, it is off by as a part of itself.
        apart = abs(one["train/margin"] - other["train/margin"])
        assert norm == pytest.approx(expected, rel=near + apart)
        assert logprobs == pytest.approx(expected_logprobs, abs=WAYS[engine] * -min(expected_logprobs))


async def test_a_loss_over_the_whole_batch_stays_with_the_client(service: TinkerServiceClient) -> None:
    settings = PairLossSettings(pair_loss="kto")
    assert not isinstance(pair_objective(settings, await service.pair_losses()).loss, FusedPairLoss)


async def test_a_call_that_parts_a_pair_is_refused_and_leaves_nothing(service: TinkerServiceClient) -> None:
    client = await service.create_lora_training_client(BASE_MODEL, rank=8, seed=1)
    with pytest.raises(tinker.RequestFailedError, match=r"orpo is a loss over pairs and the request has 3 datums"):
        await client.forward_backward(interleaved(SOME)[:3], "orpo", {"num_pairs": 2})
    with pytest.raises(tinker.RequestFailedError, match="every pass since the last step failed"):
        await client.optim_step(tinker.AdamParams(learning_rate=0.0))


@pytest.mark.parametrize(
    ("max_datums", "max_bytes", "expected"),
    [(1024, 10**6, [10]), (5, 10**6, [4, 4, 2]), (1024, 1000, [4, 4, 2]), (1, 1, [2, 2, 2, 2, 2])],
)
def test_calls_hold_whole_pairs_and_what_one_request_takes(
    max_datums: int, max_bytes: int, expected: list[int]
) -> None:
    data_D = interleaved(SOME)
    calls = list(whole_pairs(data_D, PairLossOffer(max_datums=max_datums, max_bytes=max_bytes)))
    assert [len(call) for call in calls] == expected
    assert [datum for call in calls for datum in call] == data_D


def test_the_size_of_a_call_is_what_the_sdk_takes_it_for() -> None:
    # Catches a change of the SDK's after which it would split where we do not.
    (call,) = whole_pairs(interleaved(SOME), PairLossOffer(max_datums=1024, max_bytes=10**6))
    size = sum(_estimate_datum_bytes_count_proto(datum) for datum in call)
    for max_bytes, expected in ((size, 1), (size - 1, 2)):
        assert len(list(whole_pairs(call, PairLossOffer(max_datums=1024, max_bytes=max_bytes)))) == expected
