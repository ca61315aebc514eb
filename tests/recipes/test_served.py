"""What a service offers decides on the model of a recipe, before data is read; and what it takes for it is shown."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters, ServiceAddress
from cookhouse.algorithms.base.facts import settings_notes
from cookhouse.errors import InputError
from cookhouse.models.catalog.prices import published_prices, table_prices
from cookhouse.models.catalog.retired import SUCCESSORS, successor_among, successors
from cookhouse.recipes import dry_run, run_async
from cookhouse.recipes.config import make_config
from cookhouse.recipes.recipe import every_recipe, find_recipe
from cookhouse.service import offer
from cookhouse.settings import published_model_of
from cookhouse.settings.rates import RateDefault

HOSTED = Adapters.hosted(api_key="tml-key").service
OWN = ServiceAddress(base_url="http://127.0.0.1:9", api_key="tml-key")
BASE = "Qwen/Qwen3.5-9B-Base"


def offers(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(offer, "_ask", lambda *_: names)


@pytest.mark.parametrize(
    ("service", "offered", "recipe", "model", "rate"),
    [
        (HOSTED, ["meta-llama/Llama-3.1-8B", BASE], "supervised", "meta-llama/Llama-3.1-8B", 2e-4),
        (HOSTED, ["Qwen/Qwen3.8-27B", BASE], "supervised", BASE, 2e-4),
        (HOSTED, [f"{BASE}:peft:131072", "a/b"], "supervised", f"{BASE}:peft:131072", 2e-4),
        (OWN, ["Qwen/Qwen3-8B", BASE], "dpo", BASE, 1e-5),
        (OWN, ["cookhouse/tiny", BASE], "supervised", "cookhouse/tiny", 5e-3),
        (OWN, ["HuggingFaceTB/SmolLM2-135M-Instruct"], "supervised", "HuggingFaceTB/SmolLM2-135M-Instruct", 1.32e-3),
        (OWN, ["HuggingFaceTB/SmolLM2-135M-Instruct"], "rl", "HuggingFaceTB/SmolLM2-135M-Instruct", 3.97e-4),
    ],
)
def test_the_offer_decides_where_nobody_names_a_model(
    monkeypatch: pytest.MonkeyPatch, service: Any, offered: list[str], recipe: str, model: str, rate: float
) -> None:
    """Catches a retired model that is asked for, a rate scaled for a successor unasked, and a lone model refused."""
    offers(monkeypatch, *offered)
    found: Any = find_recipe(recipe)
    config = make_config(found, {}, service)
    assert (config.model_name, config.learning_rate) == (model, pytest.approx(rate, rel=1e-2))
    assert make_config(found, found.config_class(), service) == config
    assert make_config(found, {"learning_rate": 1e-6}, service).learning_rate == 1e-6


def test_the_run_says_whose_rate_it_has_and_what_auto_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    offers(monkeypatch, BASE)
    config = make_config(find_recipe("supervised"), {}, HOSTED)
    said = [note for note in settings_notes(config) if note.startswith(BASE)]
    assert said == [
        f"{BASE} is a successor of meta-llama/Llama-3.1-8B, with which the recipe was published and on which "
        "learning_rate=0.0002 was measured; learning_rate=auto would take 0.000473, by the rule for qwen3.5 of width "
        "4,096"
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "offered", "error"),
    [
        ({}, ["a/model", "a/modem"], r"unknown model at http://127.0.0.1:9 .*set model_name to one that it offers"),
        ({"model_name": "Qwen/Qwen3.8-27"}, ["a/b", "Qwen/Qwen3.8-27B"], "did you mean Qwen/Qwen3.8-27B?"),
        ({"model_name": "meta-llama/Llama-3.2-3B"}, ["a/b", BASE], f"its successor there is {BASE}: set model_name"),
        ({"model_name": "Qwen/Qwen3-8B"}, ["a/b"], "unknown model .* 'Qwen/Qwen3-8B'; allowed: a/b"),
    ],
)
async def test_what_is_not_offered_is_refused_before_the_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, Any], offered: list[str], error: str
) -> None:
    """Catches a run that reads and tokenizes its data first: the file named here is not there."""
    offers(monkeypatch, *offered)
    config = {**given, "renderer_name": "role_colon", "dataset_path": str(tmp_path / "none.jsonl")}
    with pytest.raises(InputError, match=error):
        await run_async("supervised", config, adapters=Adapters(service=OWN, sinks=[]))
    with pytest.raises(InputError, match=error):
        await asyncio.to_thread(dry_run, "supervised", config, adapters=Adapters(service=OWN))


def test_no_recipe_asks_for_a_retired_model_where_the_service_is_silent() -> None:
    """Catches one of the recipes that were published with a model of before 12 June."""
    for recipe in every_recipe():
        if published_model_of(recipe.config_class) is None or recipe.name == "multi_teacher_distillation":
            continue  # the latter wants teachers named
        forced = {"renderer_name": "role_colon", "force_renderer": True}
        assert make_config(recipe, forced, HOSTED).model_name not in SUCCESSORS, recipe.name


def test_successors_follow_one_another_to_the_newest() -> None:
    assert successors("Qwen/Qwen3-32B") == ["Qwen/Qwen3.6-27B", "Qwen/Qwen3.8-27B"]
    assert successor_among("Qwen/Qwen3-32B", ["Qwen/Qwen3.8-27B:peft:262144"]) == "Qwen/Qwen3.8-27B:peft:262144"
    assert successor_among("a/b", ["c/d"]) is None


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"supported_models": [{"model_name": "a/b"}, {"model_name": "c", "trainable": False}, 3]}, ("a/b",)),
        ({"supported_models": [{"model_name": "\x1b[2J"}, {"model_name": ["a"]}, {"model_name": "x" * 999}]}, ()),
        ({"supported_models": "all"}, None),
        (None, None),
    ],
)
def test_an_offer_is_read_with_care(monkeypatch: pytest.MonkeyPatch, answer: Any, names: Any) -> None:
    """Catches what a terminal would obey, and an answer of another form that ends the run."""
    monkeypatch.undo()
    monkeypatch.setattr(offer, "_known", {})
    monkeypatch.setattr("cookhouse.training.clients.client.server_json", lambda *_: answer)
    assert offer.models_offered(OWN) == names


LIST = [{"tinker_id": "Qwen/Qwen3.5-4B", "prefill": "$0.40", "sample": "1.2", "train": "n/a"}, "x", {"tinker_id": 3}]


def test_prices_are_those_that_are_published_else_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = published_prices("Qwen/Qwen3.5-4B", LIST), table_prices("Qwen/Qwen3.5-4B")
    assert new is not None
    assert old is not None
    assert (new.text, old.text) == ("sample:1.2,prefill:0.4", "train:0.737,sample:1.005,prefill:0.33")
    assert "as they were in 2026-10" in old.source
    assert "models.json" in new.source
    assert published_prices("a/b", LIST) is published_prices("a/b", {"no": "list"}) is table_prices("a/b") is None
    longer = table_prices("Qwen/Qwen3.8-27B:peft:262144")
    assert longer is not None
    assert longer.by_kind["train"] == 7.46
    monkeypatch.setattr(offer, "_published", lambda: LIST)
    assert offer.prices_of("Qwen/Qwen3.5-4B") == new


def test_a_dry_run_for_the_hosted_service_shows_money(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offers(monkeypatch, "Qwen/Qwen3.5-4B")
    monkeypatch.setattr("cookhouse.models.tokenizers.resolve_model", lambda _: str(tiny()))
    config = {"model_name": "Qwen/Qwen3.5-4B", "renderer_name": "qwen3_5_disable_thinking", "num_eval": 2}
    config |= {"dataset_path": str(tmp_path / "rows.jsonl")}
    row = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    plan = dry_run("supervised", {**config, "log_path": str(tmp_path / "run")}, adapters=Adapters(service=HOSTED))
    assert plan.facts["prices"] == (
        "train:0.737,sample:1.005,prefill:0.33 for Qwen/Qwen3.5-4B, US dollars, as they were in 2026-10"
    )
    assert plan.facts["cost"].endswith("by train 0.737, sample 1.005, prefill 0.33 per million; on top: evaluations")
    paid = dry_run(
        "supervised",
        {**config, "price_per_million": "3", "log_path": str(tmp_path / "run")},
        adapters=Adapters(service=HOSTED),
    )
    assert "prices" not in paid.facts, "what somebody named holds"
    assert "by train 3," in paid.facts["cost"]


def tiny() -> str:
    from cookhouse.assets import resolve_model

    return resolve_model("cookhouse/tiny")


def test_every_rate_that_was_published_knows_its_kind() -> None:
    """Catches a recipe by reward whose rate for another model would be that for conversations."""
    by_reward = {"rl", "rl_basic", "rl_loop", "math_rl", "code_rl", "dpo", "preference_rl", "on_policy_distillation"}
    for recipe in every_recipe():
        field = recipe.config_class.__chz_fields__.get("learning_rate")
        if field is not None and isinstance(field._munger, RateDefault):
            has_reward = field._munger.by_reward
            assert has_reward or recipe.name not in by_reward
