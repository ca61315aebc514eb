"""Renderers by name."""

from typing import Any

import pytest

from cookhouse.chat import Renderer, get_renderer, register_renderer, registry, supported_renderers
from cookhouse.errors import InputError, UnknownNameError


def test_every_name_gives_a_renderer(tiny: Any) -> None:
    assert supported_renderers() == ["human_ai", "qwen3", "qwen3_disable_thinking", "qwen3_instruct", "role_colon"]
    assert all(isinstance(get_renderer(name, tiny), Renderer) for name in supported_renderers())


def test_an_unknown_name_lists_near_ones(tiny: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown renderer 'qwen3_instuct'; did you mean qwen3_instruct"):
        get_renderer("qwen3_instuct", tiny)


def test_a_third_party_renderer_is_found_and_a_taken_name_refused(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_RENDERERS", dict(registry._RENDERERS))
    factory = registry._RENDERERS["role_colon"]
    register_renderer("mine", factory)
    assert "mine" in supported_renderers()
    assert type(get_renderer("mine", tiny)) is factory
    with pytest.raises(InputError, match="exists already"):
        register_renderer("qwen3", factory)
