"""A place with two runs, and weights that say what a test tells them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.runs.kit import make_run
from tests.view.conftest import TOKEN

from cookhouse.assets import TINY_MODEL
from cookhouse.chat import get_renderer
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.service.sampling.chat_model import ChatModel, SamplingOptions
from cookhouse.service.sampling.target import Target
from cookhouse.training import FakeService
from cookhouse.training.clients.fake import FakeState
from cookhouse.view.access import Access
from cookhouse.view.place import Place
from cookhouse.view.playground.playground import Playground
from cookhouse.view.playground.shared_service import Say
from cookhouse.view.serving import create_app

RENDERER = "qwen3_instruct"
END = "<|im_end|>"


def make_trained(folder: Path, number: int = 0, **settings: Any) -> Path:
    """A run that has saved weights, in a service of its own."""
    run = make_run(folder, number=number, model_name=TINY_MODEL, renderer_name=RENDERER, **settings)
    point = {"name": "n", "epoch": 0, "batch": 1, "step": 1, "final": True, "state_path": None}
    (run / "checkpoints.jsonl").write_text(json.dumps({**point, "sampler_path": f"tinker://{run.name}/s/1"}) + "\n")
    (run / "service").mkdir()
    return run


@dataclass(kw_only=True)
class FakeEngine:
    """Opens weights that say a text of their own each. Fits `Opener`; `open` fits `OpenService`."""

    says: dict[str, str] = field(default_factory=dict)
    """By name; of others it is their name."""
    fails: dict[str, Exception] = field(default_factory=dict)
    """What asking raises, by name."""
    waits: asyncio.Event | None = None
    """Before each request is answered."""
    has_all: bool = True
    num_started: int = 0
    num_running: int = 0
    num_requests: int = 0
    num_cancelled: int = 0

    @asynccontextmanager
    async def open(self, say: Say) -> AsyncIterator["FakeEngine"]:
        say("starting the fake engine")
        self.num_started += 1
        self.num_running += 1
        try:
            yield self
        finally:
            self.num_running -= 1

    def has(self, targets: Sequence[Target]) -> bool:
        del targets
        return self.has_all

    async def chat_models(self, targets: Sequence[Target], draw: SamplingOptions) -> list[ChatModel]:
        return [await ChatModel.open(self._service(target), target, draw, is_streamed=True) for target in targets]

    def _service(self, target: Target) -> FakeService:
        name = target.label
        encoder = get_renderer(RENDERER, get_tokenizer(TINY_MODEL)).encoder
        whole = encoder.encode_with_specials(self.says.get(name, name) + END)

        def answer(_theta: Any, prompt_T: Sequence[int], _chance: Any) -> Sequence[int]:
            said = next((n for n in range(len(whole), 0, -1) if list(prompt_T[-n:]) == whole[:n]), 0)
            return whole[said:]

        async def gate(kind: str, _number: int) -> None:
            if kind != "sample":
                return
            self.num_requests += 1
            if name in self.fails:
                raise self.fails[name]
            if self.waits is not None:
                try:
                    await self.waits.wait()
                except asyncio.CancelledError:
                    self.num_cancelled += 1
                    raise

        states = {str(target.sampler_path): FakeState(theta=np.zeros(512))}
        return FakeService(states=states, answer=answer, gate=gate)


@pytest.fixture(autouse=True)
def trained(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs that have saved weights, one that has not, and no service that the environment names."""
    for name in ("TINKER_BASE_URL", "TINKER_API_KEY", "COOKHOUSE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(runs.parent))
    make_trained(runs / "first", 1)
    make_trained(runs / "group/second", 2)
    make_run(runs / "new", number=3, model_name=TINY_MODEL, renderer_name=RENDERER)
    return runs


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def playground(runs: Path, engine: FakeEngine) -> Playground:
    return Playground(Place(runs), open_service=engine.open)


@pytest.fixture
def client(runs: Path, playground: Playground) -> Iterator[TestClient]:
    """Asks for pages and JSON as somebody who has the token."""
    app = create_app(Place(runs), Access(TOKEN), playground)
    with TestClient(app, base_url="http://127.0.0.1:8600", headers={"Authorization": f"Bearer {TOKEN}"}) as asking:
        yield asking


def asked(client: TestClient, *weights: str, **others: Any) -> list[dict[str, Any]]:
    """The events of a question."""
    question = {"weights": [*weights], "prompt": "Why?", **others}
    response = client.post("/api/playground/answers", json=question)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def of(events: Sequence[dict[str, Any]], kind: str, side: int | None = None) -> list[dict[str, Any]]:
    """The events of a kind, of one side if it is given."""
    return [event for event in events if event["type"] == kind and side in (None, event.get("side"))]
