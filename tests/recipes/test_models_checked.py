"""Catches a dry run that says nothing of a model which the engine then refuses to load."""

from pathlib import Path

import pytest
from tests.engine.conftest import VOCAB_SIZE, save_model
from tests.engine.families import save_family
from transformers import DiffLlamaConfig, MambaConfig, StableLmConfig

from cookhouse.engine import TorchEngine
from cookhouse.errors import InputError
from cookhouse.recipes import dry_run

pytestmark = pytest.mark.slow

SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 256,
    "bos_token_id": None,
}


@pytest.fixture(autouse=True)
def _no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def _dry_run(folder: str, tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}] * 4
    settings = {"model_name": folder, "renderer_name": "role_colon", "force_renderer": True, "learning_rate": 1e-4}
    settings |= {"dataset_path": rows, "num_eval": 0, "batch_size": 2}
    dry_run("supervised", {**settings, "log_path": str(tmp_path / "run"), "max_steps": 1})


@pytest.mark.parametrize(
    "config_class",
    [pytest.param(each, marks=pytest.mark.slow) for each in (DiffLlamaConfig, MambaConfig, StableLmConfig)],
)
def test_a_dry_run_says_what_loading_would(config_class: type, tmp_path: Path) -> None:
    sizes = {name: size for name, size in SMALL.items() if config_class is not MambaConfig or "num_key" not in name}
    folder = save_model(tmp_path / "model", config_class(**sizes))
    with pytest.raises(InputError) as loading:
        TorchEngine(base_models=[folder], precision="float32")
    with pytest.raises(InputError) as told:
        _dry_run(folder, tmp_path)
    assert str(told.value) == str(loading.value)


@pytest.mark.parametrize("family", ["kimi_k25", pytest.param("qwen3_vl", marks=pytest.mark.slow)])
def test_a_dry_run_of_a_model_that_is_run_goes_through(family: str, tmp_path: Path) -> None:
    """One has experts, of which nothing can be said without numbers."""
    _dry_run(save_family(tmp_path / "model", family), tmp_path)
