"""Stands in for Ray where there is no cluster: a call is done when it is waited for."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest


class Call:
    """A method of an actor, and what a call of it returns: it runs in `ray.get`."""

    def __init__(self, do: Callable[..., Any]) -> None:
        self._do = do

    def remote(self, *arguments: Any) -> Callable[[], Any]:
        return lambda: self._do(*arguments)


class FakeActor:
    def __init__(self, methods: Mapping[str, Callable[..., Any]]) -> None:
        for name, do in methods.items():
            setattr(self, name, Call(do))


def get(references: Any) -> Any:
    return [reference() for reference in references] if isinstance(references, list) else references()


def wait(references: list[Any], *, num_returns: int = 1, timeout: float) -> tuple[list[Any], list[Any]]:  # noqa: ARG001
    return references, []


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.get", get)
    monkeypatch.setattr("ray.wait", wait)
    monkeypatch.setattr("ray.put", lambda value: value)
