"""The ports of a run: what each is for, which protocol its adapters fit, and which suite holds them to it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.adapters.service import EmbeddedEngine, ServiceAddress
from cookhouse.blobs.named import is_blob_store
from cookhouse.errors import InputError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Port:
    """Need of a run from the world around it, named as its field in `Adapters`."""

    doc: str
    protocol: str
    """`module:NAME` of what an adapter fits."""
    suites: Sequence[str]
    """In `cookhouse.testing`."""
    wants: str
    """What fills it, in words, for whoever gave something else."""
    is_adapter: Callable[[Any], bool]
    """Told of an object from outside, where nobody may have checked types."""


def _has(*methods: str) -> Callable[[Any], bool]:
    return lambda thing: not isinstance(thing, type) and all(callable(getattr(thing, name, None)) for name in methods)


def _are_sinks(thing: Any) -> bool:
    return isinstance(thing, list | tuple) and all(map(_has("write", "close"), thing))


def _are_evaluators(thing: Any) -> bool:
    return isinstance(thing, Mapping) and all(isinstance(name, str) and callable(make) for name, make in thing.items())


PORTS: Mapping[str, Port] = {
    "service": Port(
        doc="trains and samples: one connection makes the training and the sampling clients",
        protocol="cookhouse.training:ServiceClient",
        suites=("TrainingClientContract", "SamplingClientContract"),
        wants="a function that opens a connection",
        is_adapter=lambda thing: callable(thing) or isinstance(thing, ServiceAddress | EmbeddedEngine),
    ),
    "teacher": Port(
        doc="samples from teachers, and says how likely they find a text, where that is not the run's own service",
        protocol="cookhouse.training:ServiceClient",
        suites=("SamplingClientContract",),
        wants="a function that opens a connection",
        is_adapter=callable,
    ),
    "completer": Port(
        doc="opens completers of other models, by name: those that answer or play in environments",
        protocol="cookhouse.rl:MessageCompleter",
        suites=("MessageCompleterContract",),
        wants="a function of a model's name that gives a completer, which is an async function of messages",
        is_adapter=callable,
    ),
    "hub": Port(
        doc="has models and tokenizers by name",
        protocol="cookhouse.models.hub:HubClient",
        suites=("HubContract",),
        wants="an object with find, download and upload",
        is_adapter=_has("find", "download", "upload"),
    ),
    "blobs": Port(
        doc="keeps the files of a run when it ends",
        protocol="cookhouse.blobs:BlobStore",
        suites=("BlobContract",),
        wants="an object with the methods of cookhouse.blobs.BlobStore",
        is_adapter=is_blob_store,
    ),
    "registry": Port(
        doc="keeps versions of models under names",
        protocol="cookhouse.registry:ModelRegistry",
        suites=("RegistryContract",),
        wants="an object with the methods of cookhouse.registry.ModelRegistry",
        is_adapter=_has("register", "get", "find", "promote", "set_parent", "delete"),
    ),
    "datasets": Port(
        doc="opens data sets by id",
        protocol="cookhouse.data:DatasetStore",
        suites=("DatasetStoreContract",),
        wants="a store of data sets, with open",
        is_adapter=_has("open"),
    ),
    "evaluators": Port(
        doc="measure the weights beside those that the settings name",
        protocol="cookhouse.evals:Evaluator",
        suites=("EvaluatorContract",),
        wants="a mapping of names to functions of the settings and the renderer, each of which makes an evaluator",
        is_adapter=_are_evaluators,
    ),
    "sinks": Port(
        doc="are told what happens in a run, besides its folder",
        protocol="cookhouse.telemetry:Sink",
        suites=("SinkContract",),
        wants="a list, of objects with write and close",
        is_adapter=_are_sinks,
    ),
}
"""By the name of the field in `Adapters`."""


def check_ports(names: Collection[str], asked_by: str = "") -> None:
    """See that each is a port; `asked_by` is said of one that is not.

    Raises:
        UnknownNameError: one is not.
    """
    for name in names:
        if name not in PORTS:
            raise UnknownNameError("port", name, PORTS, way_out=asked_by)


def check_adapter(port: str, adapter: Any, owner: str) -> None:
    """See that an object from outside can fill a port.

    Raises:
        InputError: it cannot.
    """
    if not PORTS[port].is_adapter(adapter):
        raise InputError(f"{owner} has {adapter!r} for {port}; that must be {PORTS[port].wants}")


def is_synthetic(adapter: Any) -> bool:
    """True if an adapter, or one of several, makes things up: it has an attribute `synthetic` that is True."""
    if isinstance(adapter, Mapping):
        return any(map(is_synthetic, adapter.values()))
    if isinstance(adapter, list | tuple):
        return any(map(is_synthetic, adapter))
    return getattr(getattr(adapter, "__self__", adapter), "synthetic", False) is True
