"""The loss `stable_reinforce`: what it is computed from is what was sampled, or it is refused."""

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.contract.calls import BASE_MODEL, gradient_norm, new_trainer
from tests.contract.conftest import TORCH_ENGINES, make_torch_engine
from tests.server.hosting import KEY, Host, hosted
from tinker import types

from cookhouse.server.settings import Settings

FIRST, SECOND = [3, 17, 4, 9], [30, 2]
Change = Callable[[types.Datum], types.Datum]
on_each_engine = pytest.mark.parametrize("engine", TORCH_ENGINES)


@pytest.fixture(scope="module", params=TORCH_ENGINES)
def own_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    settings = Settings(stable_reinforce="own")
    with hosted(tmp_path_factory.mktemp("own"), partial(make_torch_engine, request.param), settings) as host:
        yield host


@pytest.fixture
def own_client(own_host: Host) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=own_host.url, api_key=KEY) as client:
        yield client


def sampled(trainer: tinker.TrainingClient, prompt: list[int], *, records: bool = True) -> types.SampledSequence:
    sampler = trainer.save_weights_and_get_sampling_client(record_stability_info=records).result()
    params = types.SamplingParams(max_tokens=3, seed=1, stop=[])
    return sampler.sample(types.ModelInput.from_ints(prompt), 2, params).result().sequences[1]


def episode(trainer: tinker.TrainingClient, *, records: bool = True) -> types.Datum:
    """Two turns in one datum: the second prompt goes on behind the first answer. Advantages are 1 and -0.5."""
    one = sampled(trainer, FIRST, records=records)
    prompt = [*FIRST, *one.tokens, *SECOND]
    two = sampled(trainer, prompt, records=records)
    assert one.logprobs is not None
    assert two.logprobs is not None
    tokens = [*prompt, *two.tokens]
    logprobs = [*[0.0] * len(FIRST), *one.logprobs, *[0.0] * len(SECOND), *two.logprobs]
    advantages = [*[0.0] * len(FIRST), 1.0, 1.0, 1.0, *[0.0] * len(SECOND), -0.5, -0.5, -0.5]
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=[0] * (len(FIRST) - 1) + tokens[len(FIRST) :], dtype="int64"),
            "logprobs": types.TensorData(data=logprobs[1:], dtype="float32"),
            "advantages": types.TensorData(data=advantages[1:], dtype="float32"),
        },
    )
    prompt_span, sampled_span = types.PromptProvenanceSpan, types.SampledProvenanceSpan
    between = prompt_span(sequence_id=two.sequence_id, offset=len(FIRST) + 3, length=len(SECOND))
    return datum.with_provenance(
        model_input=[
            prompt_span(sequence_id=one.sequence_id, length=len(FIRST)),
            sampled_span(sequence_id=one.sequence_id, length=3),
            between,
            sampled_span(sequence_id=two.sequence_id, length=2),
        ],
        loss_fn_inputs=[
            prompt_span(sequence_id=one.sequence_id, offset=1, length=len(FIRST) - 1),
            sampled_span(sequence_id=one.sequence_id, length=3),
            between,
            sampled_span(sequence_id=two.sequence_id, length=3),
        ],
    )


def with_input(name: str, position: int, value: float) -> Change:
    """One value of an input changed."""

    def change(datum: types.Datum) -> types.Datum:
        old = datum.loss_fn_inputs[name]
        data: Any = old.tolist()
        data[position] = value
        new = types.TensorData(data=data, dtype=old.dtype)
        return replace(datum, loss_fn_inputs={**datum.loss_fn_inputs, name: new})

    return change


def with_token(position: int) -> Change:
    """One token of the input changed."""

    def change(datum: types.Datum) -> types.Datum:
        tokens = datum.model_input.to_ints()
        tokens[position] = (tokens[position] + 1) % 30
        return replace(datum, model_input=types.ModelInput.from_ints(tokens))

    return change


def with_span(index: int, **changes: Any) -> Change:
    """One span of the targets changed."""

    def change(datum: types.Datum) -> types.Datum:
        spans = list(datum.loss_fn_input_spans or [])
        spans[index] = replace(spans[index], **changes)
        return replace(datum, loss_fn_input_spans=spans)

    return change


def with_mask(datum: types.Datum) -> types.Datum:
    """The mask that the server makes of the spans."""
    ones = types.TensorData(data=[1.0] * datum.model_input.length, dtype="float32")
    return replace(datum, loss_fn_inputs={**datum.loss_fn_inputs, "is_sampled": ones})


def bare(datum: types.Datum) -> types.Datum:
    return replace(datum, model_input_spans=None, loss_fn_input_spans=None)


def test_it_trains_on_what_was_sampled(own_host: Host, own_client: tinker.ServiceClient) -> None:
    """Would catch a loss that is not said to be ours, or is not that of the docs."""
    trainer = new_trainer(own_client)
    datum = episode(trainer)
    result = trainer.forward_backward([datum, datum], "stable_reinforce", {"kl_coeff": 0.5}).result()
    assert result.metrics["stable_reinforce_is_own:max"] == 1.0
    (logprobs, again) = (output["logprobs"].tolist() for output in result.loss_fn_outputs)
    assert logprobs == again
    inputs = {name: tensor.tolist() for name, tensor in datum.loss_fn_inputs.items()}
    terms = [
        min(math.exp(lp - q), 2.0) * (0.5 * 0.5 * (lp - q) ** 2 - advantage * lp)
        for lp, q, advantage in zip(logprobs, inputs["logprobs"], inputs["advantages"], strict=True)
        if advantage
    ]
    assert result.metrics["loss:sum"] == pytest.approx(2 * sum(terms), rel=1e-4)
    assert gradient_norm(trainer) > 0
    rest = tinker.RestClient(base_url=own_host.url, api_key=KEY)
    metadata = rest.get_training_run(trainer.get_info().model_id).result().user_metadata
    assert metadata is not None
    assert metadata["stable_reinforce"].startswith("own: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bare, "the spans of model_input cover 0 positions of 11"),
        (with_token(1), "does not begin with the prompt of"),
        (with_token(5), "its model_input differs from what was sampled"),
        (with_input("target_tokens", 4, 29), "its target_tokens differ from what was sampled"),
        (with_input("logprobs", 4, -0.125), "its logprobs differ from those of the sampler"),
        (
            with_input("advantages", 0, 1.0),
            "the advantage at position 0 is not 0, and the target there was not sampled",
        ),
        (with_span(1, sequence_id="sample-0"), "'sample-0' is no sequence that this session has recorded"),
        (with_span(1, sequence_id="sample-" + "1" * 24 + "-0"), "is no sequence that this session has recorded"),
        (with_span(1, offset=1), "its span of 3 sampled tokens from 1"),
        (with_span(0, offset=0), "its span of 3 prompt tokens from 0"),
        (with_span(2, length=3), "the spans of loss_fn_inputs cover 12 positions of 11"),
        (with_mask, "does not take is_sampled"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_is_not_what_was_sampled_is_refused(
    change: Change, message: str, own_client: tinker.ServiceClient
) -> None:
    """Would catch a ratio between probabilities of two different things. Nothing of such a request may count."""
    trainer = new_trainer(own_client)
    datum = episode(trainer)
    bad = change(datum)
    with pytest.raises(tinker.RequestFailedError, match=message) as caught:
        trainer.forward_backward([datum, bad], "stable_reinforce").result()
    assert caught.value.category == "user"
    assert "datum 1: " in str(caught.value)
    assert gradient_norm(trainer) == 0.0


def test_what_was_not_recorded_here_is_refused(own_host: Host, own_client: tinker.ServiceClient) -> None:
    """Would catch sequences of another session, and of a sampler that was not asked to record."""
    trainer = new_trainer(own_client)
    with tinker.ServiceClient(base_url=own_host.url, api_key=KEY) as other:
        foreign = episode(new_trainer(other))
        for datum in (foreign, episode(trainer, records=False)):
            with pytest.raises(tinker.RequestFailedError, match="is no sequence that this session has recorded"):
                trainer.forward_backward([datum], "stable_reinforce").result()


@on_each_engine
def test_what_was_sampled_is_on_the_disk_when_it_is_answered(engine: str, tmp_path: Path) -> None:
    """Would catch a run that goes on behind a restart of the server, and whose samples are then refused."""
    settings = Settings(stable_reinforce="own")
    with (
        hosted(tmp_path, partial(make_torch_engine, engine), settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        one = sampled(new_trainer(client), FIRST)
        with closing(sqlite3.connect(tmp_path / "server.db")) as database:
            kept = database.execute("SELECT sequence_id, num_prompt_tokens FROM recordings ORDER BY 1").fetchall()
    request_id = (one.sequence_id or "").rpartition("-")[0]
    assert kept == [(f"{request_id}-0", len(FIRST)), (f"{request_id}-1", len(FIRST))]


@on_each_engine
def test_without_the_operators_word_it_is_refused_where_a_client_listens(
    host: Host, client: tinker.ServiceClient
) -> None:
    """Upstream's trainer that streams minibatches samples in tasks that nobody waits for: a refusal there leaves it
    waiting for ever, and one of the training request ends it.
    """
    trainer = client.create_lora_training_client(BASE_MODEL, rank=8, seed=1).result()
    datum = episode(trainer)
    for refused in (datum, bare(datum)):
        with pytest.raises(tinker.RequestFailedError, match="use loss_fn=importance_sampling, ppo") as caught:
            trainer.forward_backward([refused], "stable_reinforce").result()
        assert "serve --stable-reinforce own" in str(caught.value)
        assert caught.value.category == "user"
    trainer.forward_backward([bare(datum)], "importance_sampling").result()
    owner, session_id = host.service.keys.owner_of(KEY), trainer.get_info().model_id.split(":")[0]
    ids = {span.sequence_id for span in datum.model_input_spans or []}
    kept = host.service.storage.store.recordings(session_id, owner, ids, max_bytes=2**20)
    assert not kept, "nobody can use it"
