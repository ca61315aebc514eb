"""The published SDK against `serve --as-hosted`: what the hosted service refuses, in its words and with its codes."""

import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import tinker
from tests.contract.calls import BASE_MODEL, DATA, PROMPT, datum, greedy, new_trainer, train
from tests.server.fake_engine import MAX_CONTEXT_TOKENS, FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.waiting import wait_until
from tinker import types
from tinker_cookbook.capture.proxy.app import _is_context_overflow

from cookhouse.engine.contract import SampleOutput
from cookhouse.server.settings import Settings

RETIRED = "Qwen/Qwen3-32B"
SESSION: dict[str, object] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
STRICT = Settings(as_hosted=True, sweep_seconds=0.2)
Call = Callable[[tinker.ServiceClient], object]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    sources = {BASE_MODEL: BASE_MODEL, RETIRED: BASE_MODEL}
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine, STRICT, sources) as host:
        yield host


@pytest.fixture
def client(strict: Host) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=strict.url, api_key=KEY) as client:
        yield client


@dataclass(frozen=True)
class Refused:
    """A call that the hosted service refuses, and how."""

    call: Call
    kind: type[tinker.APIStatusError]
    pattern: str
    """Of the whole text."""


class Held(FakeEngine):
    """Samples when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.num_running = 0

    def step_samples(self) -> Sequence[SampleOutput]:
        self.num_running = len(self._running)
        return super().step_samples() if self.go.wait(0.01) else []


def http(host: Host) -> httpx.Client:
    return httpx.Client(base_url=f"{host.url}/api/v1", headers={"X-API-Key": KEY}, timeout=30, trust_env=False)


def result(raw: httpx.Client, accepted: httpx.Response) -> dict[str, object]:
    content: dict[str, object] = raw.post("/retrieve_future", json={"request_id": accepted.json()["request_id"]}).json()
    return content


def rest(client: tinker.ServiceClient, key: str = KEY) -> tinker.RestClient:
    return tinker.RestClient(base_url=str(client.holder._base_url), api_key=key)


def with_weights(value: float) -> types.Datum:
    return datum([3, 17, 4], [1.0, value])


def made(client: tinker.ServiceClient, base_model: str = BASE_MODEL, **lora: object) -> object:
    return client.create_lora_training_client(base_model=base_model, **lora).result()  # type: ignore[arg-type]


def load(trainer: tinker.TrainingClient, path: str) -> object:
    with pytest.warns(FutureWarning, match="load_state"):
        return trainer.load_state(path).result()


def loaded_behind(*calls: str) -> Call:
    """A load into a client that has made these calls."""

    def call(client: tinker.ServiceClient) -> object:
        trainer = new_trainer(client)
        path = new_trainer(client, seed=2).save_state("a").result().path
        for name in calls:
            if name == "forward_backward":
                trainer.forward_backward(DATA, "cross_entropy").result()
            elif name == "save_state":
                trainer.save_state("b").result()
            else:
                load(trainer, path)
        return load(trainer, path)

    return call


def sampled(prompt: types.ModelInput, max_tokens: int = 1) -> Call:
    def call(client: tinker.ServiceClient) -> object:
        sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
        return sampler.sample(prompt, 1, greedy(max_tokens)).result()

    return call


def of_session(session_id: Callable[[tinker.ServiceClient], str]) -> Call:
    """A model of another session than the client's own."""

    def call(client: tinker.ServiceClient) -> object:
        client.holder._session_id = session_id(client)
        return made(client)

    return call


def foreign_session(client: tinker.ServiceClient) -> str:
    other = tinker.ServiceClient(base_url=str(client.holder._base_url), api_key=OTHER_KEY)
    return other.holder.get_session_id()


def foreign(name: str) -> Call:
    """A call about a checkpoint of another tenant's."""

    def call(client: tinker.ServiceClient) -> object:
        with tinker.ServiceClient(base_url=str(client.holder._base_url), api_key=OTHER_KEY) as other:
            trainer = new_trainer(other)
            state = trainer.save_state("mine").result().path
            weights = trainer.save_weights_for_sampler("mine").result().path
            if name == "run":
                run_id = state.removeprefix("tinker://").partition("/")[0]
                return rest(client).get_training_run(run_id).result()
            if name == "state":
                return client.create_training_client_from_state_with_optimizer(state).result()
            if name == "sampler":
                return client.create_sampling_client(model_path=weights).result()
            return rest(client).delete_checkpoint_from_tinker_path(weights).result()

    return call


def exchanged(client: tinker.ServiceClient, *, samples: bool) -> object:
    """A sampler's checkpoint loaded, or a training state sampled from."""
    trainer = new_trainer(client)
    if samples:
        return client.create_sampling_client(model_path=trainer.save_state("s").result().path).result()
    return client.create_training_client_from_state(trainer.save_weights_for_sampler("s").result().path).result()


def bare_id_deleted(client: tinker.ServiceClient) -> object:
    path = new_trainer(client).save_state("bare").result().path
    run_id = path.removeprefix("tinker://").partition("/")[0]
    return rest(client).delete_checkpoint(run_id, "bare").result()


EMPTY_FIRST = types.ModelInput(chunks=[types.EncodedTextChunk(tokens=[]), types.EncodedTextChunk(tokens=[3])])


def trained_with_an_empty_chunk(client: tinker.ServiceClient) -> object:
    inputs = {"target_tokens": types.TensorData(data=[4], dtype="int64")}
    data = [*DATA, types.Datum(model_input=EMPTY_FIRST, loss_fn_inputs=inputs)]
    return new_trainer(client).forward_backward(data, "cross_entropy").result()


ROWS = {
    "load behind a pass": Refused(
        loaded_behind("forward_backward"), tinker.BadRequestError, "LoadWeights is not permitted with seq_id 2"
    ),
    "load behind a save": Refused(
        loaded_behind("save_state"), tinker.BadRequestError, "LoadWeights is not permitted with seq_id 2"
    ),
    "load behind a load": Refused(
        loaded_behind("load_state"), tinker.BadRequestError, "LoadWeights is not permitted with seq_id 2"
    ),
    "rank 0": Refused(lambda client: made(client, rank=0), tinker.BadRequestError, "lora_config.rank must be positive"),
    "rank -1": Refused(
        lambda client: made(client, rank=-1), tinker.BadRequestError, "lora_config.rank must be positive"
    ),
    "rank 48": Refused(
        lambda client: made(client, rank=48), tinker.BadRequestError, "lora_config.rank must be a power of 2"
    ),
    "rank above the model's limit": Refused(
        lambda client: made(client, rank=128),
        tinker.BadRequestError,
        "LoRA rank 128 is not supported; allowed are 1 to 64, and 0 to train all weights",
    ),
    "no base model": Refused(lambda client: made(client, ""), tinker.BadRequestError, "base_model is required"),
    "case of a model id": Refused(
        lambda client: made(client, "Cookhouse/Tiny"),
        tinker.BadRequestError,
        ".*'Cookhouse/Tiny'.*cookhouse/tiny.*",
    ),
    "retired model": Refused(
        lambda client: made(client, RETIRED),
        tinker.BadRequestError,
        f"{RETIRED} has been retired; use Qwen/Qwen3.6-27B",
    ),
    "context exceeded": Refused(
        sampled(types.ModelInput.from_ints([3] * 100), 29),
        tinker.BadRequestError,
        re.escape(
            "Prompt length plus max_tokens exceeds the model's context window: "
            f"100 prompt tokens + 29 max_tokens > {MAX_CONTEXT_TOKENS}."
        ),
    ),
    "unknown session": Refused(
        of_session(lambda _: "no-such-session"), tinker.PermissionDeniedError, "Invalid session_id"
    ),
    "foreign session": Refused(of_session(foreign_session), tinker.PermissionDeniedError, "Invalid session_id"),
    "foreign run": Refused(foreign("run"), tinker.PermissionDeniedError, "You do not have access to this model"),
    "foreign state": Refused(foreign("state"), tinker.PermissionDeniedError, "You do not have access to this model"),
    "foreign sampler": Refused(
        foreign("sampler"), tinker.PermissionDeniedError, "You do not have access to this model"
    ),
    "foreign checkpoint deleted": Refused(
        foreign("delete"), tinker.PermissionDeniedError, "You do not have access to this model"
    ),
    "empty text chunk, sampled": Refused(
        sampled(EMPTY_FIRST), tinker.BadRequestError, "model_input has a text chunk without tokens; leave it out"
    ),
    "empty text chunk, trained": Refused(
        trained_with_an_empty_chunk,
        tinker.BadRequestError,
        "model_input has a text chunk without tokens; leave it out",
    ),
    "bare checkpoint id": Refused(
        bare_id_deleted,
        tinker.BadRequestError,
        "checkpoint id 'bare' has no kind; give weights/bare or sampler_weights/bare",
    ),
    "sampler's path loaded": Refused(
        lambda client: exchanged(client, samples=False),
        tinker.BadRequestError,
        "tinker://.*/sampler_weights/s has the weights of a sampler; .*",
    ),
    "state's path sampled": Refused(
        lambda client: exchanged(client, samples=True),
        tinker.BadRequestError,
        "tinker://.*/weights/s is a training state; .*",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_refused_as_at_the_hosted_service(client: tinker.ServiceClient, name: str) -> None:
    """Would catch another status, another text, and a request that is done all the same."""
    row = ROWS[name]
    with pytest.raises(row.kind) as caught:
        row.call(client)
    assert isinstance(caught.value.body, dict)
    assert re.fullmatch(row.pattern, caught.value.body["detail"])


def test_nothing_to_train(strict: Host) -> None:
    """The SDK of today checks that itself."""
    with http(strict) as raw:
        session = raw.post("/create_session", json=SESSION).json()["session_id"]
        lora = {"rank": 8, "train_mlp": False, "train_attn": False, "train_unembed": False}
        model = {"session_id": session, "model_seq_id": 0, "base_model": BASE_MODEL, "lora_config": lora}
        refused = raw.post("/create_model", json=model)
        nameless = raw.post("/create_model", json={"session_id": session, "model_seq_id": 0})
    text = "At least one of train_unembed, train_mlp, or train_attn must be True"
    assert (refused.status_code, refused.json()["detail"]) == (400, text)
    assert (nameless.status_code, nameless.json()["detail"]) == (400, "base_model is required")


def test_an_overflow_is_one_for_the_cookbook(client: tinker.ServiceClient) -> None:
    """Would catch a text that its proxy takes for a failure of the server's, which agents then retry."""
    with pytest.raises(tinker.BadRequestError) as caught:
        sampled(types.ModelInput.from_ints([3] * 100), 29)(client)
    assert _is_context_overflow(str(caught.value))
    assert sampled(types.ModelInput.from_ints([3] * 100), 28)(client)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([DATA[0], with_weights(math.nan)], "NonFiniteInTensor: weights of datum 1 holds NaN or infinity"),
        ([with_weights(math.inf)], "NonFiniteInTensor: weights of datum 0 holds NaN or infinity"),
        ([datum([3] * 130)], f"PromptTooLong: datum 0 has 129 tokens, of at most {MAX_CONTEXT_TOKENS}"),
    ],
)
def test_data_that_fails_its_future(client: tinker.ServiceClient, data: list[types.Datum], text: str) -> None:
    """Would catch a refusal at submit, and one without the hosted service's code."""
    trainer = new_trainer(client)
    with pytest.raises(tinker.RequestFailedError, match=text) as caught:
        trainer.forward_backward(data, "cross_entropy").result()
    assert caught.value.category == "user"
    assert math.isfinite(train(trainer, 1)[0])


def test_a_name_that_exists_is_a_conflict_which_the_sdk_retries(strict: Host, client: tinker.ServiceClient) -> None:
    """Would catch a failed future, and a save that is taken for a copy of its own."""
    trainer = new_trainer(client)
    path = trainer.save_state("same").result().path
    before = strict.service.rules.counts["name_exists"]
    second = trainer.save_state("same")
    wait_until(lambda: strict.service.rules.counts["name_exists"] >= before + 2)
    with pytest.raises(TimeoutError):
        second.result(timeout=0)
    rest(client).delete_checkpoint_from_tinker_path(path).result()
    assert second.result().path == path
    assert trainer.save_state("same", overwrite=True).result().path == path


def test_a_copy_of_a_save_is_none_of_another(strict: Host, client: tinker.ServiceClient) -> None:
    """Would catch a retry of a save that was done, refused for the name that it has taken itself."""
    trainer = new_trainer(client)
    trainer.save_state("once").result()
    with http(strict) as raw:
        save = {"model_id": trainer.model_id, "seq_id": 1, "path": "once"}
        assert raw.post("/save_weights", json=save).status_code == 200
        assert raw.post("/save_weights", json={**save, "seq_id": 2}).status_code == 409


def test_a_retired_model_is_not_offered(client: tinker.ServiceClient) -> None:
    offered = {one.model_name for one in rest(client).get_server_capabilities().result().supported_models}
    assert offered == {BASE_MODEL}


@pytest.mark.parametrize(
    ("version", "is_refused"), [("0.22.3", True), ("0.9.1", True), ("0.22.4", False), ("1.0.0", False), ("dev", False)]
)
def test_a_version_that_the_hosted_service_refuses(strict: Host, version: str, is_refused: bool) -> None:
    with http(strict) as raw:
        answer = raw.post("/create_session", json={**SESSION, "sdk_version": version})
    assert answer.status_code == (400 if is_refused else 200)
    text = "Your Tinker SDK version is no longer supported. Please upgrade to the latest version."
    assert (answer.json().get("detail") == text) == is_refused


def test_too_many_samples_at_once(tmp_path: Path) -> None:
    """Would catch a limit that ends a client: the SDK waits at a 429, and sends again."""
    settings = Settings(as_hosted=True, max_queued_samples=1)
    engine = Held()
    with (
        hosted(tmp_path, lambda: engine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
        http(host) as raw,
    ):
        sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
        futures = [sampler.sample(PROMPT, 1, greedy(1)) for _ in range(2)]
        wait_until(lambda: engine.has_samples())
        request = {
            "sampling_session_id": sampler._sampling_session_id,
            "seq_id": 7,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
            "sampling_params": {"max_tokens": 1},
        }
        assert raw.post("/asample", json=request).status_code == 429
        engine.go.set()
        assert all(len(future.result().sequences) == 1 for future in futures)


def test_weights_beyond_the_limit_wait_and_the_sdk_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a refusal, a wait that nobody is told of, and weights that never get their turn."""
    settings = Settings(max_samplers=1, long_poll_seconds=0.2)
    engine = Held()
    with (
        hosted(tmp_path, lambda: engine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = new_trainer(client)
        samplers = [trainer.save_weights_and_get_sampling_client().result() for _ in range(3)]
        futures = [sampler.sample(PROMPT, 1, greedy(1)) for sampler in samplers]
        wait_until(lambda: caplog.text.count("concurrent sampler weights limit hit") >= 2)
        assert engine.num_running == 1
        engine.go.set()
        assert all(len(future.result().sequences) == 1 for future in futures)


def test_without_it_all_of_that_is_done_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a line for each request, one that names another rule, and a counter that leaves some out."""
    with (
        hosted(tmp_path, FakeEngine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = client.create_lora_training_client(base_model=BASE_MODEL, rank=48).result()
        train(trainer, 1)
        path = trainer.save_state("a").result().path
        for _ in range(3):
            load(trainer, path)
        sampler = client.create_sampling_client(model_path=path).result()
        for _ in range(2):
            sampler.sample(types.ModelInput.from_ints([3] * 120), 1, greedy(50)).result()
        figures = httpx.get(f"{host.url}/metrics", trust_env=False).text
    lines = [record.getMessage() for record in caplog.records if "hosted service would have refused" in record.message]
    assert [line.count("LoadWeights is not permitted with seq_id 4") for line in lines].count(1) == 1
    assert len(lines) == 4
    assert all(line.startswith(f"session {trainer.model_id.partition(':')[0]}") for line in lines)
    for rule, number in {
        "rank_not_power_of_two": 1,
        "load_not_first": 3,
        "state_path_sampled": 1,
        "context_exceeded": 2,
    }.items():
        assert f'cookhouse_hosted_refusals_total{{rule="{rule}"}} {number}.0' in figures


def test_what_was_accepted_before_runs_again_as_hosted(tmp_path: Path) -> None:
    """Would catch a server that comes back with --as-hosted and loses a model for what it has accepted without."""
    mild = Settings(state_seconds=1e9, state_bytes=2**40)
    with hosted(tmp_path, FakeEngine, mild) as host, http(host) as raw:
        session = raw.post("/create_session", json=SESSION).json()
        model = {"session_id": session["session_id"], "model_seq_id": 0, "base_model": BASE_MODEL}
        model_id = raw.post("/create_model", json={**model, "lora_config": {"rank": 48}}).json()["model_id"]
        save = {"model_id": model_id, "seq_id": 1, "path": "a"}
        path = result(raw, raw.post("/save_weights", json=save))["path"]
        load = {"model_id": model_id, "seq_id": 2, "path": path, "optimizer": True}
        result(raw, raw.post("/load_weights", json=load))
    with hosted(tmp_path, FakeEngine, STRICT) as host, http(host) as raw:
        step = {"model_id": model_id, "seq_id": 3, "adam_params": {"learning_rate": 0.0}}
        assert "metrics" in result(raw, raw.post("/optim_step", json=step))
        assert raw.post("/load_weights", json=load).status_code == 200  # a copy of the one that was accepted
        assert raw.post("/load_weights", json={**load, "seq_id": 4}).status_code == 400
