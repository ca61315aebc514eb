"""Bundles of adapters: presets, what is known of them, and what cannot fill a port."""

import importlib
from typing import Any

import pytest

from cookhouse import testing
from cookhouse.adapters import PORTS, Adapters, EmbeddedEngine, ServiceAddress, check_ports, make_adapters
from cookhouse.blobs import NoopBlobStore
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.evals import noop_evaluator
from cookhouse.training import FakeService


def test_presets() -> None:
    store = NoopBlobStore()
    assert Adapters.local(blobs=store) == Adapters(service=EmbeddedEngine(), blobs=store)
    assert Adapters.hosted(api_key="tml-k", base_url="http://a:1").service == ServiceAddress(
        base_url="http://a:1", api_key="tml-k"
    )
    assert Adapters.local(program="mine").program == "mine"
    noop = Adapters.noop(blobs=store)
    assert noop.blobs is store
    assert noop.ports == set(PORTS) - {"sinks"}, "a no-op for every port but the terminal's, which shows the run"


def test_presets_by_name() -> None:
    assert make_adapters("local") == Adapters(service=EmbeddedEngine(), name="local")
    assert make_adapters("hosted").service == ServiceAddress(base_url=None, api_key=None)
    assert make_adapters("noop").name == "noop"


def test_what_makes_things_up_is_known_by_port() -> None:
    assert Adapters.noop().synthetic == tuple(sorted(set(PORTS) - {"sinks"}))
    assert Adapters.local().synthetic == ()
    assert Adapters(service=FakeService().connect).synthetic == ("service",)
    mixed = Adapters.local(evaluators={"real": lambda *_: None, "noop": noop_evaluator()})
    assert mixed.synthetic == ("evaluators",), "one of several is enough"


@pytest.mark.parametrize(
    ("ports", "error", "message"),
    [
        ({"blob": NoopBlobStore()}, UnknownNameError, "unknown port 'blob'; did you mean blobs"),
        ({"registr": 1}, UnknownNameError, "unknown port 'registr'"),
        ({"blobs": "s3://bucket"}, InputError, "has 's3://bucket' for blobs; that must be an object with the methods"),
        ({"hub": NoopBlobStore()}, InputError, "for hub; that must be an object with find, download and upload"),
        (
            {"evaluators": [noop_evaluator()]},
            InputError,
            "for evaluators; that must be a mapping of names to",
        ),
        ({"service": "http://a"}, InputError, "for service; that must be a function that opens a connection"),
        ({"completer": 1}, InputError, "has 1 for completer; that must be a function of a model's name"),
    ],
)
def test_what_cannot_fill_a_port_is_refused(ports: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Adapters.noop(**ports)


def test_unknown_ports_say_who_named_them() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown port 'sevice'; did you mean service.*; stage train names it"):
        check_ports(["service", "sevice"], "stage train names it")


@pytest.mark.parametrize("port", PORTS)
def test_every_port_has_a_protocol_and_its_suites(port: str) -> None:
    module, _, name = PORTS[port].protocol.partition(":")
    assert hasattr(importlib.import_module(module), name)
    for suite in PORTS[port].suites:
        assert issubclass(getattr(testing, suite), testing.Contract)
