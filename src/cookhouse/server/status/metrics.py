"""The figures of a server for Prometheus, in its text format."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cookhouse.server.access.auth import KeyRing
from cookhouse.server.service import Service
from cookhouse.server.status.cached import Cached
from cookhouse.server.status.figures import Live
from cookhouse.server.status.worker_metrics import worker_metrics
from cookhouse.server.status.worker_watch import WorkerWatches
from cookhouse.server.storage.store.usage import Usage

_TOKENS = ("trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens")
_OTHERS = "other"
_USAGE_SECONDS = 5.0
_PATIENCE_SECONDS = 2.0
"""How long an answer waits for what was used; without it, it has what was read before."""


class Metrics:
    """Lives on the event loop."""

    def __init__(self, service: Service, watches: WorkerWatches) -> None:
        self._service = service
        self._watches = watches
        self._used = Cached(service.requests.metering.by_owner, seconds=_USAGE_SECONDS)

    async def text(self) -> bytes:
        """All of them, of all tenants. A tenant is named as by `KeyRing.label_of`. What was used is left
        out where it has never been read.
        """
        service = self._service
        used, seen = await asyncio.gather(self._used.get(_PATIENCE_SECONDS), self._watches.look())
        live = Live.of(service)
        metrics = [
            *(() if used.value is None else _usage(_by_tenant(used.value, service.keys))),
            *_server(service, live),
            *worker_metrics(service, live, seen),
        ]
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(metrics))
        return generate_latest(registry)


class _Collected:
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def _by_tenant(used: Mapping[str, Usage], keys: KeyRing) -> dict[str, Usage]:
    """By label: each key that the server accepts has one, and all that it accepts no more have one together."""
    owners = keys.owners
    tenants = {keys.label_of(owner): used.get(owner, Usage()) for owner in owners}
    for owner, some in used.items():
        if owner not in owners:
            tenants[_OTHERS] = tenants.get(_OTHERS, Usage()) + some
    return tenants


def _usage(tenants: Mapping[str, Usage]) -> Iterator[Metric]:
    tokens = CounterMetricFamily(
        "cookhouse_tokens", "Tokens of requests that were answered.", labels=["tenant", "kind"]
    )
    seconds = CounterMetricFamily("cookhouse_engine_seconds", "Seconds of the engine.", labels=["tenant"])
    for tenant, some in tenants.items():
        for name in _TOKENS:
            tokens.add_metric([tenant, name.removesuffix("_tokens")], getattr(some, name))
        seconds.add_metric([tenant], some.engine_seconds)
    yield tokens
    yield seconds


def _server(service: Service, live: Live) -> Iterator[Metric]:
    yield GaugeMetricFamily("cookhouse_sessions", "Sessions that have not ended.", value=len(live.sessions))
    yield GaugeMetricFamily(
        "cookhouse_requests",
        "Requests that wait, run, or have a result that is kept.",
        value=len(service.sequencer.futures),
    )
    models = GaugeMetricFamily("cookhouse_models", "Models in training.", labels=["base_model"])
    held = Counter(one.model.base_model for one in live.models)
    for name in {**dict.fromkeys(service.requests.base_models.names), **held}:
        models.add_metric([name], held[name])
    yield models
    yield GaugeMetricFamily(
        "cookhouse_training_requests",
        "Requests of models that wait or run.",
        value=sum(one.length.num_waiting + one.length.num_running for one in live.models),
    )
    yield GaugeMetricFamily(
        "cookhouse_samples", "Sampling requests that wait or run.", value=len(service.sequencer.samples)
    )
    if service.leases is not None:
        name, what = "cookhouse_servers", "Servers that share the sessions, this one among them."
        yield GaugeMetricFamily(name, what, value=service.leases.num_living)
    if service.storage.journal is not None:
        state = service.storage.journal.commit.state
        yield GaugeMetricFamily(
            "cookhouse_journal_waiting", "Commits of the journal that are not written yet.", value=state.num_waiting
        )
        yield GaugeMetricFamily("cookhouse_journal_waiting_bytes", "Of these commits.", value=state.waiting_bytes)
        yield GaugeMetricFamily(
            "cookhouse_journal_failing", "1 while the journal cannot be written.", value=state.failure is not None
        )
