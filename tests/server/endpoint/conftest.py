"""OpenAI's own client against our server: over the embedded model, and over one that says what a test has it say."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import openai
import pytest
from tests.contract.conftest import make_torch_engine
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.assets import TINY_MODEL
from cookhouse.chat import Renderer, get_renderer
from cookhouse.models.tokenizers import get_tokenizer

MODEL = TINY_MODEL


def new_client(host: Host, key: str = KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{host.url}/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), make_torch_engine) as host:
        yield host


@pytest.fixture(scope="session")
def client(host: Host) -> Iterator[openai.OpenAI]:
    with new_client(host) as client:
        yield client


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    """Of the embedded model: it thinks and calls tools, which the model itself never does."""
    return get_renderer("qwen3", get_tokenizer(MODEL))


@pytest.fixture
def scripted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractContextManager[tuple[openai.OpenAI, ScriptedEngine]]]:
    """A server whose model answers with given tokens, in the chat format `qwen3`."""
    monkeypatch.setattr("cookhouse.server.requests.completions.formats.default_renderer", lambda *_, **__: "qwen3")

    @contextmanager
    def serve(*answers: list[int]) -> Iterator[tuple[openai.OpenAI, ScriptedEngine]]:
        engine = ScriptedEngine(answers)
        with hosted(tmp_path, lambda: engine) as host, new_client(host) as client:
            yield client, engine

    return serve
