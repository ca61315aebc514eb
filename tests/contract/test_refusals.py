"""Bad input through the SDK: one clear exception, soon, and the next request works."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tinker
from tests.contract.calls import BASE_MODEL, DATA, datum, gradient_norm, new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted
from tinker import types

from cookhouse.engine.contract import SampleOutput
from cookhouse.server.settings import Settings

PROMPT = types.ModelInput.from_ints([3, 17, 4, 9])
LIMIT_SECONDS = 8.0
"""The traps are at 30 s (telemetry), a minute and five minutes (retries); the rest is patience with a busy machine."""


@contextmanager
def soon() -> Iterator[None]:
    started_at = time.monotonic()
    yield
    assert time.monotonic() - started_at < LIMIT_SECONDS


def floats(values: list[float]) -> types.TensorData:
    return types.TensorData(data=values, dtype="float32")


def ints(values: list[int]) -> types.TensorData:
    return types.TensorData(data=values, dtype="int64")


def with_inputs(**inputs: types.TensorData) -> types.Datum:
    return types.Datum(model_input=types.ModelInput.from_ints([3, 17, 4]), loss_fn_inputs=inputs)


BAD_DATA = {
    "input token outside the vocabulary": (datum([3, 10**6, 4]), "1000000"),
    "negative token": (datum([3, -1, 4]), "-1"),
    "target outside the vocabulary": (with_inputs(target_tokens=ints([17, 4, 10**6])), "1000000"),
    "targets too short": (with_inputs(target_tokens=ints([17, 4])), "target_tokens"),
    "no targets": (with_inputs(weights=floats([1, 1, 1])), "target_tokens"),
    "weights too long": (with_inputs(target_tokens=ints([17, 4, 9]), weights=floats([1] * 4)), "weights"),
    "NaN weight": (with_inputs(target_tokens=ints([17, 4, 9]), weights=floats([1, math.nan, 1])), "weights"),
    "infinite weight": (with_inputs(target_tokens=ints([17, 4, 9]), weights=floats([1, math.inf, 1])), "weights"),
    "image": (
        types.Datum(
            model_input=types.ModelInput(chunks=[types.ImageChunk(data=b"\x89PNG", format="png", expected_tokens=2)]),
            loss_fn_inputs={"target_tokens": ints([17, 4])},
        ),
        "image",
    ),
}


def check_nothing_is_left(trainer: tinker.TrainingClient) -> None:
    """The gradient begins anew behind a pass that failed: one more pass sums to what a pass behind a step sums to."""
    norms = []
    for _ in range(2):
        trainer.forward_backward(DATA, "cross_entropy").result()
        norms.append(gradient_norm(trainer))
    assert norms[0] == norms[1] > 0.0


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_datum_fails_its_future_and_leaves_no_gradient(trainer: tinker.TrainingClient, name: str) -> None:
    """Would catch a refusal of the submit, a server error, and a gradient of the good datums that stays behind."""
    bad, named = BAD_DATA[name]
    with soon(), pytest.raises(tinker.RequestFailedError, match="datum 1") as caught:
        trainer.forward_backward([DATA[0], bad, DATA[1]], "cross_entropy").result()
    assert caught.value.category == "user"
    assert named in str(caught.value)
    check_nothing_is_left(trainer)
    assert math.isfinite(train(trainer, 1)[0])


def test_unknown_loss_is_named(trainer: tinker.TrainingClient) -> None:
    """Would catch an unknown loss that is taken for the default one."""
    with soon(), pytest.raises(tinker.RequestFailedError, match="croos_entropy") as caught:
        trainer.forward_backward(DATA, "croos_entropy").result()  # type: ignore[arg-type]
    assert caught.value.category == "user"
    assert "cross_entropy" in str(caught.value)
    check_nothing_is_left(trainer)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (types.AdamParams(learning_rate=-1.0), "learning_rate"),
        (types.AdamParams(beta2=1.0), "beta2"),
        (types.DimuonParams(learning_rate=0.1), "dimuon"),
    ],
)
def test_bad_optimizer_step(trainer: tinker.TrainingClient, params: types.OptimParams, named: str) -> None:
    """Would catch values that turn the weights into NaN, or another optimizer than was asked for."""
    with soon(), pytest.raises(tinker.RequestFailedError, match=named):
        trainer.optim_step(params).result()
    assert math.isfinite(train(trainer, 1)[0])


@pytest.mark.parametrize(
    ("tokens", "options", "named"),
    [
        ([3, 10**6], {}, "1000000"),
        ([], {}, "prompt"),
        ([3], {"temperature": -1.0}, "temperature"),
        ([3], {"top_p": 0.0}, "top_p"),
        ([3], {"top_k": 0}, "top_k"),
        ([3], {"max_tokens": 0}, "max_tokens"),
        ([3] * 200_000, {}, "200000"),
    ],
)
def test_bad_sample(client: tinker.ServiceClient, tokens: list[int], options: dict[str, float], named: str) -> None:
    """Would catch a bad request that stops the decode batch of everyone."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    params = types.SamplingParams.model_validate({"max_tokens": 4, "stop": [], **options})
    with soon(), pytest.raises(tinker.RequestFailedError, match=named) as caught:
        sampler.sample(types.ModelInput.from_ints(tokens), 1, params).result()
    assert caught.value.category == "user"
    assert len(sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)).result().sequences) == 1


def test_targets_that_do_not_fit_the_prompt(client: tinker.ServiceClient) -> None:
    """Would catch a server error, and an answer of other cells than were asked."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    for shape, token in (([4, 1], 3), ([3, 1], 10**6)):
        targets = types.TensorData(data=[token] * shape[0], dtype="int64", shape=shape)
        with soon(), pytest.raises(tinker.RequestFailedError, match="target_prompt_logprobs") as caught:
            sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1), target_prompt_logprobs=targets).result()
        assert caught.value.category == "user"


def test_too_many_samples_of_one_prompt(client: tinker.ServiceClient) -> None:
    """Would catch a request that makes the server write out a billion ids."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    with soon(), pytest.raises(tinker.BadRequestError, match="num_samples"):
        sampler.sample(PROMPT, 10**9, types.SamplingParams(max_tokens=1)).result()


def test_unknown_base_model(client: tinker.ServiceClient) -> None:
    """Would catch a 409 or a 5xx, which the SDK retries for minutes."""
    with soon(), pytest.raises(tinker.BadRequestError, match=BASE_MODEL):
        client.create_lora_training_client(base_model="cookhouse/tinny").result()
    with soon(), pytest.raises(tinker.BadRequestError, match=BASE_MODEL):
        client.create_sampling_client(base_model="cookhouse/tinny").result()
    new_trainer(client)


def test_unknown_checkpoint(client: tinker.ServiceClient) -> None:
    """Would catch a path that is joined to a folder instead of being looked up."""
    for path in ("tinker://nobody:train:0/weights/x", "tinker://../../etc/passwd", "tinker://a/b"):
        with soon(), pytest.raises(tinker.NotFoundError, match="no checkpoint"):
            client.create_training_client_from_state(path).result()
        with soon(), pytest.raises(tinker.NotFoundError, match="no checkpoint"):
            client.create_sampling_client(path).result()


def test_names_of_checkpoints(trainer: tinker.TrainingClient) -> None:
    """Would catch a name that reaches the file system, and one checkpoint that silently replaces another."""
    for name in ("a/b", "..", "", "x" * 300, "nul\0"):
        with soon(), pytest.raises(tinker.RequestFailedError, match="name"):
            trainer.save_state(name).result()
    with soon(), pytest.raises(tinker.RequestFailedError, match="ttl_seconds"):
        trainer.save_state("short", ttl_seconds=5).result()
    first = trainer.save_state("taken").result().path
    with soon(), pytest.raises(tinker.RequestFailedError, match="exists"):
        trainer.save_state("taken").result()
    assert trainer.save_state("taken", overwrite=True).result().path == first


def test_weights_alone_have_no_optimizer(client: tinker.ServiceClient, trainer: tinker.TrainingClient) -> None:
    """Would catch an optimizer that silently starts afresh when it was asked for."""
    path = trainer.save_weights_for_sampler("bare").result().path
    with soon(), pytest.raises(tinker.RequestFailedError, match="weights only"):
        client.create_training_client_from_state_with_optimizer(path).result()


def test_a_checkpoint_of_another_rank_is_not_loaded_over_a_model(
    client: tinker.ServiceClient, trainer: tinker.TrainingClient
) -> None:
    """Would catch a model that changes its rank under a client, whose run and checkpoints then say the old one."""
    path = client.create_lora_training_client(BASE_MODEL, rank=4).result().save_state("narrow").result().path
    with pytest.warns(FutureWarning, match="load_state"):
        loading = trainer.load_state(path)
    with soon(), pytest.raises(tinker.RequestFailedError, match="make a new training client from the checkpoint"):
        loading.result()
    train(trainer, 1)


def test_wrong_key(host: Host) -> None:
    """Would catch a key that is not checked, or is echoed."""
    with soon(), pytest.raises(tinker.AuthenticationError, match="TINKER_API_KEY") as caught:
        tinker.ServiceClient(base_url=host.url, api_key="tml-wrong-key-0009").create_lora_training_client(BASE_MODEL)
    assert "wrong-key" not in str(caught.value)


def test_oversized_body(tmp_path: Path) -> None:
    """Would catch a connection that is cut, which the SDK retries for minutes, and a client that is stuck after it."""
    with hosted(tmp_path, FakeEngine, Settings(max_body_bytes=20_000)) as host:
        client = tinker.ServiceClient(base_url=host.url, api_key=KEY)
        trainer = new_trainer(client)
        big = datum([3, 4] * 500_000)
        with soon(), pytest.raises(tinker.APIStatusError, match="at most 20000") as caught:
            trainer.forward_backward([big], "cross_entropy").result()
        assert caught.value.status_code == 413
        assert math.isfinite(train(trainer, 1)[0])
        sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
        with soon(), pytest.raises(tinker.APIStatusError, match="at most 20000"):
            sampler.sample(types.ModelInput.from_ints([3] * 100_000), 1, types.SamplingParams(max_tokens=1)).result()
        assert sampler.compute_logprobs(PROMPT).result()[0] is None
        client.close("success").result()


def test_refusals_are_quick_with_telemetry(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a telemetry sink that fails: the SDK then delays each exception by 30 s."""
    monkeypatch.setenv("TINKER_TELEMETRY", "1")
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer = new_trainer(client)
        with soon(), pytest.raises(tinker.RequestFailedError):
            trainer.forward_backward([datum([3, -1])], "cross_entropy").result()
        sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
        with soon(), pytest.raises(tinker.RequestFailedError):
            sampler.sample(types.ModelInput.from_ints([-1]), 1, types.SamplingParams(max_tokens=1)).result()


def test_a_fault_of_the_engine_fails_one_future(tmp_path: Path) -> None:
    """Would catch an engine thread that dies of an exception, or a fault that is blamed on the user."""

    class FaultyEngine(FakeEngine):
        num_faults = 1

        def optim_step(self, model_id: str, step: object) -> dict[str, float]:
            if self.num_faults:
                self.num_faults -= 1
                raise ZeroDivisionError("a bug")
            return dict(super().optim_step(model_id, step))  # type: ignore[arg-type]

    with (
        hosted(tmp_path, FaultyEngine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = new_trainer(client)
        with soon(), pytest.raises(tinker.RequestFailedError, match="ZeroDivisionError: a bug") as caught:
            trainer.optim_step(types.AdamParams()).result()
        assert caught.value.category == "server"
        assert np.isfinite(train(trainer, 2)).all()


def test_a_fault_while_sampling_fails_what_was_running(tmp_path: Path) -> None:
    """Would catch samples that wait for ever, and an engine that is stepped again and again with the same fault."""

    class FaultyEngine(FakeEngine):
        num_faults = 1

        def step_samples(self) -> Sequence[SampleOutput]:
            if self.num_faults:
                self.num_faults -= 1
                raise ZeroDivisionError("a bug")
            return super().step_samples()

    with (
        hosted(tmp_path, FaultyEngine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
        with soon(), pytest.raises(tinker.RequestFailedError, match="ZeroDivisionError: a bug") as caught:
            sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)).result()
        assert caught.value.category == "server"
        assert len(sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)).result().sequences) == 1
