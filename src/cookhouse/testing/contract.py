"""Base of the contract suites: methods named `test_…`, each over adapters that the suite makes anew."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

A = TypeVar("A")


class ContractError(AssertionError):
    """An adapter does not do what its port promises; says what the port promises and what was seen."""


class Contract(ABC, Generic[A]):
    """A suite over one port. A subclass names the adapter; a method `test_…` is one promise of the port, and takes no
    arguments, so that the suite runs under pytest and without it.
    """

    @abstractmethod
    def make(self) -> A:
        """A fresh adapter, which shares nothing with those made before."""

    def folder(self) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(prefix="cookhouse-contract-"))


def require(promise: bool, message: str) -> None:
    """Raises `ContractError` with the message unless the promise is kept; unlike `assert` also under `python -O`."""
    if not promise:
        raise ContractError(message)


def failures_of(suite: Contract[A]) -> Mapping[str, str]:
    """Runs every `test_…` of a suite: what failed, by the test's name, in words. Empty: the contract is kept."""
    failures: dict[str, str] = {}
    for name in sorted(name for name in dir(suite) if name.startswith("test_")):
        try:
            getattr(suite, name)()
        except Exception as error:  # of an adapter that may be anybody's
            failures[name] = str(error) if isinstance(error, ContractError) else f"{type(error).__name__}: {error}"
    return failures
