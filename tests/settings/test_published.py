"""A recipe has two sets of defaults, and it is plain which of them a run took."""

import chz
import pytest

from cookhouse.errors import InputError
from cookhouse.settings import (
    Default,
    ModelSettings,
    SupervisedSettings,
    by_model,
    default_in_words,
    default_origin,
    defaults_taken,
    is_embedded,
    published_model,
    published_model_of,
    redefault,
)
from cookhouse.settings.defaults import computed
from cookhouse.settings.published import origins_of


@chz.chz
class Config(SupervisedSettings):
    model_name: str = published_model("meta-llama/Llama-3.1-8B")
    dataset_path: str | None = redefault(SupervisedSettings, "dataset_path", by_model(embedded=None, published="hh"))
    batch_size: int = redefault(SupervisedSettings, "batch_size", by_model(embedded=32, published=128))


def test_the_embedded_model_is_the_one_where_nobody_names_another() -> None:
    assert Config().model_name == "cookhouse/tiny"
    assert is_embedded(Config())
    assert not is_embedded(Config(model_name="Qwen/Qwen3-8B"))
    assert default_in_words(Config, "model_name") == (
        "cookhouse/tiny, on the hosted service meta-llama/Llama-3.1-8B or its successor"
    )


def test_the_published_model_is_known_by_its_recipe() -> None:
    assert published_model_of(Config) == "meta-llama/Llama-3.1-8B"
    assert published_model_of(SupervisedSettings) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Config(), "those for cookhouse/tiny (batch_size 32)"),
        (
            Config(model_name="Qwen/Qwen3-8B"),
            "as published, for Qwen/Qwen3-8B (dataset_path hh, batch_size 128)",
        ),
        (Config(model_name="Qwen/Qwen3-8B", batch_size=128), "as published, for Qwen/Qwen3-8B (dataset_path hh)"),
        (Config(dataset_path="a.jsonl", batch_size=8), None),
        (SupervisedSettings(), None),
    ],
)
def test_what_was_left_open_is_said_with_its_values(config: SupervisedSettings, said: str | None) -> None:
    """Catches a line that claims what somebody set: 128 is a wish where it was typed."""
    assert defaults_taken(config) == said


def test_a_default_that_hangs_on_the_model_is_named_by_its_set() -> None:
    assert default_origin(Config(), "batch_size") == "embedded default"
    assert default_origin(Config(model_name="Qwen/Qwen3-8B"), "batch_size") == "published default"
    assert default_origin(Config(), "lora_rank") == "default"


def test_a_setting_without_a_default_of_its_own_was_set() -> None:
    # Catches a run that ends before it begins, since a default that it does not use cannot be computed.
    def refuse(_: object) -> None:
        raise InputError("unknown weights")

    @chz.chz
    class Named(ModelSettings):
        model_name: str = redefault(ModelSettings, "model_name", Default(refuse, "that of the weights"))

    assert origins_of(Named(model_name="cookhouse/tiny"))["model_name"] == "set"


def test_a_default_that_fails_ends_no_run_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    # Catches a bug in a user's own default that ends a run which does not use it, and one that nobody hears of.
    @chz.chz
    class Own(ModelSettings):
        batch_size: int = computed(Default(lambda config: config.no_such_field, "that of the field"), int, "")

    origins = origins_of(Own(batch_size=4))
    assert (origins["batch_size"], origins["model_name"]) == ("set", "default")
    assert "the default of batch_size cannot be computed" in caplog.text
    assert "no_such_field" in caplog.text
