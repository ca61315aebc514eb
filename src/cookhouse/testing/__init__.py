"""Contract suites: what an adapter of each port has to do, ours and the user's own alike.

    class TestMyStore(BlobContract):
        def make(self) -> BlobStore:
            return MyStore()

pytest collects such a class; `failures_of` runs the same checks without it. Each suite is loaded when it is first asked
for, with what its port needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cookhouse.testing.contract import Contract, ContractError, failures_of, require

if TYPE_CHECKING:
    from cookhouse.testing.blobs import BlobContract
    from cookhouse.testing.completers import MessageCompleterContract, TokenCompleterContract
    from cookhouse.testing.datasets import DatasetStoreContract
    from cookhouse.testing.evaluators import EvaluatorContract
    from cookhouse.testing.hub import HubContract
    from cookhouse.testing.registry import RegistryContract
    from cookhouse.testing.sampling import SamplingClientContract
    from cookhouse.testing.settings import unread_settings
    from cookhouse.testing.sinks import SinkContract
    from cookhouse.testing.training import TrainingClientContract

_PLACES = {
    "BlobContract": "blobs",
    "DatasetStoreContract": "datasets",
    "EvaluatorContract": "evaluators",
    "HubContract": "hub",
    "MessageCompleterContract": "completers",
    "RegistryContract": "registry",
    "SamplingClientContract": "sampling",
    "SinkContract": "sinks",
    "TokenCompleterContract": "completers",
    "TrainingClientContract": "training",
    "unread_settings": "settings",
}
"""Modules of this package by what is in each and loaded when it is asked for."""

__all__ = [
    "BlobContract",
    "Contract",
    "ContractError",
    "DatasetStoreContract",
    "EvaluatorContract",
    "HubContract",
    "MessageCompleterContract",
    "RegistryContract",
    "SamplingClientContract",
    "SinkContract",
    "TokenCompleterContract",
    "TrainingClientContract",
    "failures_of",
    "require",
    "unread_settings",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
