"""Catches an engine that holds more base models than its budget, drops one in use, or forgets what it offered."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec, SampleOutput, SampleRequest
from cookhouse.engine.model.base_model import BaseModel, keep_frequencies
from cookhouse.engine.model.pretrained import num_weight_bytes
from cookhouse.engine.sampler.graph import NothingReadBack
from cookhouse.errors import InputError
from tests.engine.conftest import random_datums
from tests.engine.families import FAMILIES, save_family
from tests.engine.stepping import advance

SPEC = LoraSpec(rank=2)
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
_POSITIONS_1N = torch.tensor([[0, 1, 63, 0, 5, 31]])


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three models of one size."""
    return [save_family(tmp_path_factory.mktemp(name), "llama") for name in "abc"]


@pytest.fixture
def engine(names: list[str]) -> TorchEngine:
    """Room for two and a half models; the first is loaded."""
    room = int(2.5 * num_weight_bytes(names[0], torch.float32))
    return TorchEngine(base_models=names[:1], precision="float32", max_base_bytes=room)


def _request(base_model: str) -> SampleRequest:
    return SampleRequest(
        request_id="r", base_model=base_model, snapshot_id=None, prompt_T=np.arange(5), max_tokens=3, seed=0, stop=[]
    )


def _sample(engine: TorchEngine, base_model: str) -> SampleOutput:
    engine.submit_sample(_request(base_model))
    while engine.has_samples():
        for output in advance(engine):
            return output
    raise AssertionError("no sample finished")


def test_the_least_recently_used_idle_model_makes_room(engine: TorchEngine, names: list[str]) -> None:
    a, b, c = names
    engine.load_base_model(b)
    engine.load_base_model(a)
    engine.load_base_model(c)
    assert set(engine._bases) == {a, c}
    assert [info.name for info in engine.base_models()] == [a, b, c]


@pytest.mark.slow
def test_a_dropped_model_frees_its_weights_and_cache_and_comes_back(engine: TorchEngine, names: list[str]) -> None:
    a, b, c = names
    before = _sample(engine, a)
    weight = weakref.ref(engine._bases[a].head.projection.weight)
    cache = weakref.ref(engine._samplers[a])
    engine.load_base_model(b)
    engine.load_base_model(c)
    gc.collect()
    assert weight() is None
    assert cache() is None
    again = _sample(engine, a)
    assert set(engine._bases) == {a, c}
    assert again.sequences[0].tokens_T.tolist() == before.sequences[0].tokens_T.tolist()


@pytest.mark.slow
def test_a_model_in_use_stays_and_is_named_when_nothing_can_go(engine: TorchEngine, names: list[str]) -> None:
    a, b, c = names
    engine.create_model("m", a, SPEC)
    engine.snapshot("m", "s")
    engine.submit_sample(_request(b))
    with pytest.raises(InputError, match=r"held by .*1 models, 1 snapshots.*samples running"):
        engine.create_model("n", c, SPEC)
    assert set(engine._bases) == {a, b}
    while engine.has_samples():
        engine.step_samples()
    engine.create_model("n", c, SPEC)
    assert set(engine._bases) == {a, c}
    engine.delete_model("m")
    with pytest.raises(InputError, match="1 snapshots"):
        engine.create_model("o", b, SPEC)
    engine.delete_snapshot("s")
    engine.create_model("o", b, SPEC)
    assert set(engine._bases) == {b, c}


def test_models_of_two_bases_train_in_one_call(engine: TorchEngine, names: list[str]) -> None:
    requests = []
    for model_id, base in zip("xy", names, strict=False):
        engine.create_model(model_id, base, SPEC)
        requests.append(ForwardBackward(model_id=model_id, data_D=random_datums([9, 5]), loss_fn="cross_entropy"))
    outputs = engine.forward_backward(requests)
    losses = [output.metrics["loss:sum"] for output in outputs if isinstance(output, ForwardBackwardOutput)]
    assert losses[0] == pytest.approx(losses[1])
    assert all(engine._model(model_id).gradient.ne(0).any() for model_id in "xy")


def test_models_named_at_start_are_offered_and_loaded_while_they_fit(names: list[str]) -> None:
    size = num_weight_bytes(names[0], torch.float32)
    engine = TorchEngine(base_models=names, precision="float32", max_base_bytes=2 * size)
    assert set(engine._bases) == set(names[:2])
    assert [info.name for info in engine.base_models()] == names
    with pytest.raises(InputError, match=r"takes .* and max_base_bytes is"):
        TorchEngine(base_models=names, precision="float32", max_base_bytes=size - 1)


def test_loading_draws_no_progress_bars(names: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Would catch a server's log filled with the bars of transformers, which then are the last words of a failure."""
    transformers_logging.enable_progress_bar()
    TorchEngine(base_models=names[:1], precision="float32")
    assert capfd.readouterr() == ("", "")


def test_a_model_that_fails_to_load_is_not_offered(engine: TorchEngine, names: list[str], tmp_path: Path) -> None:
    broken = Path(save_family(tmp_path, "llama"))
    (broken / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="cannot load base model"):
        engine.load_base_model(str(broken))
    assert [info.name for info in engine.base_models()] == names[:1]


def test_a_model_that_is_refused_frees_its_weights_at_once(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server that is killed by a client who names a model that is refused, again and again."""
    read: list[weakref.ref[torch.Tensor]] = []

    def refuse(base: BaseModel) -> None:
        read.append(weakref.ref(base.head.projection.weight))
        raise InputError("it is computed otherwise")

    engine = TorchEngine(precision="float32")
    monkeypatch.setattr(engine._bases, "_check", refuse)
    gc.disable()  # which comes when it likes
    try:
        with pytest.raises(InputError, match="it is computed otherwise") as refused:
            engine.load_base_model(names[0])
        assert [weight() for weight in read] == [None]
    finally:
        gc.enable()
    assert refused.value.__traceback__ is not None  # which does not keep them either


@pytest.mark.slow
def test_a_base_model_that_nobody_uses_makes_way_where_memory_is_short(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --max-base-bytes. Would catch a server that refuses a model for the sake of one that was asked for once,
    which no client can end; and one that drops what does not suffice.
    """
    a, b, c = names
    engine = TorchEngine(precision="float32", device="cpu")
    size = num_weight_bytes(a, torch.float32)

    def free() -> int:
        return engine._budget.promised_bytes() + int(size * (2.5 - len(engine._bases)))

    monkeypatch.setattr(engine._budget, "free", free)
    engine.load_base_model(a)
    engine.load_base_model(b)
    engine.load_base_model(a)
    engine.load_base_model(c)
    assert set(engine._bases) == {a, c}
    engine.create_model("m", a, LoraSpec(rank=1))
    engine.load_base_model(b)
    assert set(engine._bases) == {a, b}
    engine.create_model("n", b, LoraSpec(rank=1))
    with pytest.raises(InputError, match=r"takes [\d.]+ MiB and [\d.]+ MiB of memory are free .*; use a smaller model"):
        engine.load_base_model(c)
    assert set(engine._bases) == {a, b}


def _rotary(family: str, changes: dict[str, Any]) -> nn.Module:
    config = FAMILIES[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    rotary: nn.Module = AutoModelForCausalLM.from_config(config).get_decoder().rotary_emb
    return rotary


@pytest.mark.parametrize(
    ("family", "changes"), [("phi3", {}), ("llama", {"max_position_embeddings": 64, "rope_parameters": _DYNAMIC})]
)
def test_frequencies_are_chosen_without_reading_a_position(family: str, changes: dict[str, Any]) -> None:
    """Would catch models that decode without graphs, and a choice that is another one within the context."""
    x, rotary = torch.zeros(1), _rotary(family, changes)
    expected = rotary(x, _POSITIONS_1N)
    keep_frequencies(rotary)
    with NothingReadBack():  # type: ignore[no-untyped-call]
        found = rotary(x, _POSITIONS_1N)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_choice_of_transformers_reads_a_position_back_for_some() -> None:
    """Would catch a test above that cannot fail."""
    rotary = _rotary("llama", {"max_position_embeddings": 64, "rope_parameters": _DYNAMIC})
    with pytest.raises(RuntimeError, match="reads back"), NothingReadBack():  # type: ignore[no-untyped-call]
        rotary(torch.zeros(1), _POSITIONS_1N)
