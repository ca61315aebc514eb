"""The model table: families, and which renderer fits which model."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.families import FAMILIES as ENGINE_FAMILIES
from tests.engine.families import save_family
from tests.models.catalog.folders import CHATML, make_folder

from cookhouse.chat import supported_renderers
from cookhouse.errors import InputError
from cookhouse.models.catalog import (
    FAMILIES,
    TEMPLATE,
    check_renderer,
    context_tokens,
    default_renderer,
    dims,
    family_of,
    renderer_names,
    renderer_without_thinking,
    renderers_of_family,
)
from cookhouse.models.catalog.dims import Dims
from cookhouse.models.catalog.families import ENTRIES, PLAIN, Entry
from cookhouse.models.hub import HubPart, NoopHub, hub_in_use


@pytest.mark.parametrize(
    ("model", "family", "renderer"),
    [
        ("cookhouse/tiny", "qwen3", "qwen3_instruct"),
        ("cookhouse/tiny:peft:2048", "qwen3", "qwen3_instruct"),
        ("Qwen/Qwen3-8B", "qwen3", "qwen3"),
        ("Qwen/Qwen3-8B:peft:131072", "qwen3", "qwen3"),
        ("Qwen/Qwen3-0.6B", "qwen3", "qwen3"),
        ("Qwen/Qwen3-30B-A3B", "qwen3", "qwen3"),
        ("Qwen/Qwen3-8B-Base", "qwen3", "role_colon"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3", "qwen3_instruct"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3", "template"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl", "qwen3_vl_instruct"),
        ("Qwen/Qwen3.5-4B", "qwen3.5", "qwen3_5"),
        ("Qwen/Qwen3.5-397B-A17B", "qwen3.5", "qwen3_5"),
        ("Qwen/Qwen3.5-2B", "qwen3.5", "qwen3_5_disable_thinking"),
        ("Qwen/Qwen3.5-4B-Base", "qwen3.5", "role_colon"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5", "template"),
        ("Qwen/Qwen2.5-0.5B", "qwen2.5", "role_colon"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama", "llama3"),
        ("meta-llama/Llama-3.1-8B", "llama", "role_colon"),
        ("meta-llama/Llama-3.2-1B", "llama", "role_colon"),
        ("unsloth/Llama-3.3-70B-Instruct", "llama", "llama3"),
        ("deepseek-ai/DeepSeek-V3", "deepseekv3", "deepseekv3"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseekv3", "deepseekv3"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseekv3", "deepseekv3"),
        ("deepseek-ai/DeepSeek-V3.1-Base", "deepseekv3", "role_colon"),
        ("moonshotai/Kimi-K2-Instruct", "kimi_k2", "kimi_k2_instruct"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi_k2", "kimi_k2_instruct"),
        ("moonshotai/Kimi-K2-Thinking", "kimi_k2", "kimi_k2"),
        ("openai/gpt-oss-20b", "gpt-oss", "gpt_oss_no_sysprompt"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2", "template"),
        ("HuggingFaceTB/SmolLM2-1.7B", "smollm2", "role_colon"),
        ("google/gemma-3-1b-it", "gemma-3", "template"),
        ("google/gemma-3-27b-pt", "gemma-3", "role_colon"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral", "template"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral", "template"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral", "template"),
        ("microsoft/phi-4", "phi-4", "template"),
        ("allenai/OLMo-2-1124-7B-Instruct", "olmo-2", "template"),
        ("zai-org/GLM-4-9B-0414", "glm-4", "template"),
        ("zai-org/GLM-4.5-Air", "glm-4", "template"),
        ("zai-org/GLM-4.6", "glm-4", "template"),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral", "template"),
        ("mistralai/Mistral-Small-3.1-24B-Base-2503", "mistral", "role_colon"),
    ],
)
def test_known_models(model: str, family: str, renderer: str) -> None:
    assert (family_of(model), default_renderer(model)) == (family, renderer)
    check_renderer(model, renderer)


@pytest.mark.parametrize(
    ("model", "renderer"),
    [
        ("Qwen/Qwen3-8B", "qwen3_disable_thinking"),
        ("Qwen/Qwen3-8B-Base", "role_colon"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3_instruct"),
        ("Qwen/Qwen3.5-4B", "qwen3_5_disable_thinking"),
        ("Qwen/Qwen3.5-2B", "qwen3_5_disable_thinking"),
        ("openai/gpt-oss-20b", "gpt_oss_no_sysprompt"),
        ("meta-llama/Llama-3.1-8B", "role_colon"),
    ],
)
def test_thinking_is_off_where_there_is_a_way(model: str, renderer: str) -> None:
    # Catches a base model that is given a chat format because the family has one without thinking.
    assert renderer_without_thinking(model) == renderer


@pytest.mark.parametrize(
    ("model", "renderer", "others"),
    [
        ("Qwen/Qwen3-8B", "qwen3", ("qwen3_disable_thinking",)),
        ("cookhouse/tiny", "qwen3", ("qwen3_disable_thinking", "qwen3_instruct")),
        ("Qwen/Qwen3.5-2B", "qwen3_5_disable_thinking", ("qwen3_5", "qwen3_5_preserve_thinking")),
        ("deepseek-ai/DeepSeek-V3.1", "deepseekv3", ("deepseekv3_disable_thinking", "deepseekv3_thinking")),
        ("Qwen/Qwen3-8B-Base", "role_colon", ()),
        ("Qwen/Qwen3-8B", "one_of_my_own", ()),
        ("Qwen/Qwen3-8B", "template", ()),
    ],
)
def test_renderers_that_may_stand_for_each_other(model: str, renderer: str, others: tuple[str, ...]) -> None:
    """Would catch a base model or a format of one's own put to another format, and `qwen3` without its quiet form."""
    assert renderers_of_family(model, renderer) == (renderer, *others)


def test_the_table_names_every_renderer_and_no_other() -> None:
    named = {name for family in FAMILIES.values() for name in family.renderers}
    assert named | {*PLAIN, TEMPLATE} == set(supported_renderers())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.pattern)
def test_an_entry_is_of_a_family_and_its_renderers(entry: Entry) -> None:
    # Catches a chat format of another family, which would be trained in without a word.
    assert set(entry.renderers) <= {*FAMILIES[entry.family].renderers, *PLAIN, TEMPLATE}


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen3-8B-GGUF", "Qwen/Qwen3-VL-8B-Instruct-FP8", "openai/gpt-oss-safeguard-20b", "mistralai/Mistral-7B"],
)
def test_models_that_look_alike_are_not_taken_for_each_other(name: str) -> None:
    with pytest.raises(InputError, match="name a local folder"):
        default_renderer(name)


def test_a_mismatch_is_refused_unless_forced() -> None:
    with pytest.raises(InputError, match=r"'role_colon' does not fit 'Qwen/Qwen3-8B'.*use qwen3 or qwen3_dis"):
        check_renderer("Qwen/Qwen3-8B", "role_colon")
    check_renderer("Qwen/Qwen3-8B", "role_colon", force=True)
    check_renderer("mistralai/Mistral-7B", "role_colon", force=True)
    check_renderer("Qwen/Qwen3-8B", "template")


@pytest.mark.parametrize(
    ("model_type", "template", "expected"),
    [
        ("qwen3", None, "role_colon"),
        ("llama", None, "role_colon"),
        ("llama", CHATML, "template"),
        ("gemma3_text", CHATML, "template"),
        ("mamba", CHATML, "template"),
        ("mamba", None, "role_colon"),
    ],
)
def test_a_folder_is_known_by_its_config_and_chat_template(
    tmp_path: Path, model_type: str, template: str | None, expected: str
) -> None:
    model = make_folder(tmp_path / "mine", {"model_type": model_type}, template)
    assert default_renderer(model) == expected
    check_renderer(model, expected)
    assert dims(model) == Dims(hidden_size=64)


def test_a_folder_with_a_known_name_has_that_models_renderers(tmp_path: Path) -> None:
    model = make_folder(tmp_path / "Qwen3-4B-Instruct-2507", {"model_type": "qwen3"}, None)
    assert renderer_names(model) == ("qwen3_instruct", "template")


@pytest.mark.parametrize("kind", ["list", "files"])
def test_several_named_templates_are_a_chat_model(tmp_path: Path, kind: str) -> None:
    """Would catch a chat model taken for a base model because its templates have names."""
    folder = Path(make_folder(tmp_path / "mine", {"model_type": "cohere2"}, None))
    if kind == "list":
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        named = [{"name": name, "template": CHATML} for name in ("default", "tool_use")]
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": named}))
    else:
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates/default.jinja").write_text(CHATML)
    assert default_renderer(str(folder)) == "template"


def test_a_name_does_not_outweigh_the_config(tmp_path: Path) -> None:
    assert family_of(make_folder(tmp_path / "Qwen3-8B", {"model_type": "llama"}, None)) == "llama"


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no config\.json"):
        family_of(str(tmp_path))
    assert family_of(make_folder(tmp_path / "m", {"model_type": "mamba"}, None)) is None
    for text in ("{", "[" * 10**5):
        (tmp_path / "m/config.json").write_text(text)
        with pytest.raises(InputError, match="cannot be read"):
            family_of(str(tmp_path / "m"))
    (tmp_path / "m/config.json").write_text("{}")
    (tmp_path / "m/chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot be read"):
        default_renderer(str(tmp_path / "m"))


def test_how_long_a_sequence_may_be_is_in_the_models_own_config(tmp_path: Path) -> None:
    assert context_tokens("cookhouse/tiny") == 2048
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 512}}')
    assert context_tokens(str(tmp_path)) == 512
    (tmp_path / "config.json").write_text("{}")
    assert context_tokens(str(tmp_path)) is None


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_scaling": {"type": "longrope", "long_factor": [2.0]}, "original_max_position_embeddings": 64},
        {"rope_parameters": {"full_attention": {"long_factor": [2.0], "original_max_position_embeddings": 64}}},
    ],
)
def test_frequencies_that_change_with_length_bound_it(tmp_path: Path, rope: dict[str, Any]) -> None:
    """Would catch prompts that are laid out for a length at which the engine refuses them."""
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 512, **rope}))
    assert context_tokens(str(tmp_path)) == 64


@pytest.mark.parametrize("model", ["someone/model-that-nobody-has", "not/a/hub/name", "two words"])
def test_what_is_not_here_is_for_the_service_to_say(model: str) -> None:
    assert context_tokens(model) is None


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("meta-llama/Meta-Llama-3-8B", 8192),
        ("meta-llama/Llama-3.1-8B-Instruct", 131072),
        ("Qwen/Qwen3-8B", 40960),
        ("Qwen/Qwen3-8B:peft:131072", 40960),
        ("Qwen/Qwen3-8B-Base", 32768),
        ("Qwen/Qwen3-4B-Instruct-2507", 262144),
        ("Qwen/Qwen2.5-7B-Instruct", 32768),
        ("Qwen/Qwen2.5-7B", 131072),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 8192),
        ("Qwen/Qwen3.5-4B", 262144),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", 262144),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 131072),
        ("zai-org/GLM-4.6", 202752),
        ("microsoft/Phi-4-mini-instruct", 4096),  # as the engine takes it, by its config.json
    ],
)
def test_of_a_model_that_is_not_here_the_table_says_how_long_a_sequence_may_be(model: str, tokens: int | None) -> None:
    assert context_tokens(model) == tokens


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the hub's cache has of `someone/model`: a folder to write into."""
    repository = tmp_path / "models--someone--model"
    snapshot = repository / "snapshots" / "0f"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0f")
    (snapshot / "tokenizer.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return snapshot


def test_a_model_of_the_hub_has_left_its_files_in_the_cache(cached: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "max_position_embeddings": 4096}
    (cached / "config.json").write_text(json.dumps(config))
    (cached / "chat_template.jinja").write_text(CHATML)
    assert (context_tokens("someone/model"), dims("someone/model")) == (4096, Dims(hidden_size=64))
    assert family_of("someone/model") == "llama"


class OneModelHub(NoopHub):
    """A hub that has a chat model under every name, on this machine once it has been downloaded."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def find(self, name: str, part: HubPart) -> Path | None:
        del name, part
        return self.folder if (self.folder / "config.json").exists() else None

    def download(self, name: str, part: HubPart) -> Path:
        assert (name, part) == ("someone/model", HubPart.TOKENIZER)
        if not (self.folder / "config.json").exists():
            make_folder(self.folder, {"model_type": "mistral"}, CHATML)
        return self.folder


def test_a_model_that_the_table_does_not_have_is_asked_of_the_hub_before_anything_is_decided(tmp_path: Path) -> None:
    """Would catch a first run in another chat format than every later one, which finds the files on the machine."""
    with hub_in_use(OneModelHub(tmp_path / "model")):
        assert default_renderer("someone/model") == default_renderer("someone/model") == "template"


@pytest.mark.parametrize("family", ENGINE_FAMILIES)
def test_every_family_that_the_engine_trains_is_in_the_table(tmp_path: Path, family: str) -> None:
    model = save_family(tmp_path, family)
    assert family_of(model) in FAMILIES
    assert default_renderer(model) == "role_colon"
    assert context_tokens(model) == (64 if family == "phi3" else 512)  # phi3's was 64 before it was made longer
