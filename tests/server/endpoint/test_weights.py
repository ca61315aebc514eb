"""Which weights answer: those that were named, for whoever may name them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import tinker
from tests.contract.calls import ADAM, datum
from tests.contract.conftest import make_torch_engine
from tests.server.endpoint.conftest import MODEL, new_client
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted

from cookhouse.engine.torch_engine import TorchEngine
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.registry import Artifact, ModelStage, NewModel, open_registry

MESSAGES: Any = [{"role": "user", "content": "What is 12 plus 7?"}]
NAMED = {"renderer_name": "qwen3_instruct"}
SETTINGS: Any = {"messages": MESSAGES, "max_tokens": 6, "temperature": 0.0}


def _train(
    host: Host, word: str, metadata: dict[str, str] | None = None, *, of_weights: dict[str, str] | None = None
) -> str:
    """The path of weights that say a word again and again. `metadata` are those of the run."""
    tokens = get_tokenizer(MODEL).encode(f" {word}" * 20, add_special_tokens=False)
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as service:
        trainer = service.create_lora_training_client(MODEL, rank=8, seed=1, user_metadata=metadata).result()
        for _ in range(12):
            trainer.forward_backward([datum(list(tokens))], "cross_entropy")
            trainer.optim_step(ADAM).result()
        return trainer.save_weights_for_sampler(word, user_metadata=of_weights).result().path


@pytest.fixture(scope="module")
def paths(host: Host) -> tuple[str, str]:
    return _train(host, "lemons"), _train(host, "evening")


def _say(client: openai.OpenAI, model: str, **settings: Any) -> str:
    answer = client.chat.completions.create(model=model, **(SETTINGS | settings))
    assert answer.model == model
    return str(answer.choices[0].message.content)


def test_the_weights_that_were_named_answer(client: openai.OpenAI, paths: tuple[str, str]) -> None:
    """Would catch an answer of the base model, or of whoever asked before."""
    lemons, evening = paths
    said = [_say(client, model) for model in (MODEL, lemons, evening, lemons, MODEL)]
    assert "lemons" in said[1]
    assert "evening" in said[2]
    assert said[3:] == [said[1], said[0]]
    assert len({*said[:3]}) == 3


@pytest.mark.parametrize("is_published", [False, True])
def test_what_a_tenant_has_asked_is_not_reused_for_another(
    host: Host, client: openai.OpenAI, paths: tuple[str, str], is_published: bool
) -> None:
    # Catches a prompt that somebody else can tell was asked before, as the answer says what was at hand.
    asked: Any = {"prompt": "A word that only one of them knows. " * 20, "max_tokens": 2}
    asked["model"] = paths[0] if is_published else MODEL
    rest = tinker.RestClient(base_url=host.url, api_key=KEY)
    rest.publish_checkpoint_from_tinker_path(paths[0]).result()

    def num_reused(by: openai.OpenAI) -> int:
        details: Any = by.completions.create(**asked).usage
        return int(details.prompt_tokens_details.cached_tokens)

    first, again = num_reused(client), num_reused(client)
    with new_client(host, OTHER_KEY) as other:
        assert (first, num_reused(other)) == (0, 0)
        assert num_reused(other) == again > 0
    rest.unpublish_checkpoint_from_tinker_path(paths[0]).result()


def test_weights_that_could_not_be_loaded_are_loaded_again(
    host: Host, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches a disk that failed once, and weights that fail with its error for ever.
    path = _train(host, "lemons")
    load, failures = TorchEngine.load_snapshot, [OSError("the disk is away")]

    def fail_once(engine: TorchEngine, *arguments: Any) -> None:
        if failures:
            raise failures.pop()
        load(engine, *arguments)

    monkeypatch.setattr(TorchEngine, "load_snapshot", fail_once)
    with pytest.raises(openai.APIStatusError):
        _say(client, path)
    assert "lemons" in _say(client, path)


def test_weights_that_were_asked_for_longest_ago_make_room(
    host: Host, client: openai.OpenAI, paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches weights that are read anew for each request while others, which nobody asks for, stay.
    monkeypatch.setattr("cookhouse.server.requests.completions.weights._MAX_LOADED", 2)
    first, second, third = *paths, _train(host, "ribbons")
    for path in (first, second, first):
        _say(client, path)
    load, num_loaded = TorchEngine.load_snapshot, 0

    def count(engine: TorchEngine, *arguments: Any) -> None:
        nonlocal num_loaded
        num_loaded += 1
        load(engine, *arguments)

    monkeypatch.setattr(TorchEngine, "load_snapshot", count)
    found = []
    for path in (third, first, third, second):
        _say(client, path)
        found.append(num_loaded)
    assert found == [1, 1, 1, 2]


def test_two_tenants_cannot_name_each_others_weights(host: Host, client: openai.OpenAI, paths: tuple[str, str]) -> None:
    _say(client, paths[0])  # they are loaded
    with new_client(host, OTHER_KEY) as other:
        with pytest.raises(openai.NotFoundError) as theirs:
            _say(other, paths[0])
        with pytest.raises(openai.NotFoundError) as nobodys:
            _say(other, paths[0].replace("lemons", "nothing"))
        with pytest.raises(openai.NotFoundError):
            other.models.retrieve(paths[0])
        assert [model.id for model in other.models.list()] == [MODEL]
    body: Any = theirs.value.body
    assert body["code"] == "model_not_found"
    assert body["message"].replace("lemons", "nothing") == nobodys.value.body["message"]  # type: ignore[index]


def test_published_weights_are_everybodys(host: Host, paths: tuple[str, str]) -> None:
    rest = tinker.RestClient(base_url=host.url, api_key=KEY)
    with new_client(host, OTHER_KEY) as other:
        rest.publish_checkpoint_from_tinker_path(paths[1]).result()
        assert "evening" in _say(other, paths[1])
        rest.unpublish_checkpoint_from_tinker_path(paths[1]).result()
        with pytest.raises(openai.NotFoundError):
            _say(other, paths[1])


def test_models_are_listed_and_looked_up(host: Host, client: openai.OpenAI, paths: tuple[str, str]) -> None:
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as service:
        trainer = service.create_lora_training_client(MODEL, rank=8, seed=1).result()
        files = trainer.save_weights_external("files").result().path
    listed = {model.id for model in client.models.list()}
    assert {MODEL, *paths} <= listed
    assert files not in listed, "they are for other libraries, and not sampled from"
    assert client.models.retrieve(paths[0]).id == paths[0]
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4' here; name cookhouse/tiny"):
        client.models.retrieve("gpt-4")


def test_deleted_weights_are_gone(host: Host, client: openai.OpenAI) -> None:
    """Would catch weights that answer as long as they happen to be in memory."""
    path = _train(host, "ribbons")
    _say(client, path)
    rest = tinker.RestClient(base_url=host.url, api_key=KEY)
    rest.delete_checkpoint_from_tinker_path(path).result()
    with pytest.raises(openai.NotFoundError):
        _say(client, path)


def test_the_renderer_of_the_run_renders(host: Host, client: openai.OpenAI) -> None:
    """Would catch a conversation in another format than that of the training."""
    lengths = []
    # What the weights say of themselves goes before what their run says.
    for metadata in (({"renderer_name": "role_colon"}, None), ({"renderer_name": "role_colon"}, NAMED)):
        path = _train(host, "lemons", metadata[0], of_weights=metadata[1])
        usage = client.chat.completions.create(model=path, **SETTINGS).usage
        assert usage is not None
        lengths.append(usage.prompt_tokens)
    from cookhouse.chat import get_renderer

    renderers = [get_renderer(name, get_tokenizer(MODEL)) for name in ("role_colon", "qwen3_instruct")]
    assert lengths == [len(renderer.build_generation_prompt(MESSAGES).to_ints()) for renderer in renderers]


def test_a_renderer_of_a_tenants_own_is_not_loaded(host: Host, client: openai.OpenAI, tmp_path: Path) -> None:
    """Would catch a tenant's file run by the server."""
    code = tmp_path / "mine.py"
    code.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n\nclass Mine: ...\n")
    path = _train(host, "lemons", {"renderer_name": f"{code}:Mine"})
    with pytest.raises(openai.BadRequestError, match="which this server does not have"):
        _say(client, path)
    assert not (tmp_path / "ran").exists()
    assert client.completions.create(model=path, prompt="lemons", max_tokens=2).choices[0].text


def test_renderers_are_looked_up_once(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch milliseconds of every request spent on looking through what is installed."""
    _say(client, MODEL)
    monkeypatch.delattr("cookhouse.server.requests.completions.formats.supported_renderers")
    _say(client, MODEL)


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, str]]:
    folder = tmp_path_factory.mktemp("registered")
    registry = open_registry(str(folder / "registry.db"), os.environ)
    with hosted(folder, make_torch_engine, registry=registry) as host:
        path = _train(host, "lemons")
        registry.register(NewModel(name="sums", base_model=MODEL, artifact=Artifact(path=path)))
        registry.promote("sums@1", ModelStage.PRODUCTION)
        yield host, path


def test_a_registered_model_answers_and_says_its_version(registered: tuple[Host, str]) -> None:
    host, path = registered
    with new_client(host) as client:
        expected = _say(client, path)
        for name in ("sums@1", "sums@production", "sums"):
            answer = client.chat.completions.create(model=name, **SETTINGS)
            assert (answer.model, answer.choices[0].message.content) == ("sums@1", expected)
        assert "sums@1" in {model.id for model in client.models.list()}
        with pytest.raises(openai.NotFoundError):
            _say(client, "sums@2")
    with new_client(host, OTHER_KEY) as other:
        with pytest.raises(openai.NotFoundError):
            _say(other, "sums@1")
        assert [model.id for model in other.models.list()] == [MODEL]


def test_a_run_answers_by_the_name_that_it_was_given(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with hosted(tmp_path / "first", make_torch_engine) as first:
        path = _train(first, "lemons", {"renderer_name": "role_colon"})
    state_dirs = [tmp_path / "first"]
    with (
        hosted(tmp_path / "second", make_torch_engine, runs={"runs/first": path}, read_state_dirs=state_dirs) as second,
        new_client(second) as client,
    ):
        assert "lemons" in _say(client, "runs/first")
        assert {model.id for model in client.models.list()} == {MODEL, "runs/first"}
        with pytest.raises(openai.NotFoundError):
            _say(client, "runs/../runs/first")
