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
from cookhouse.server.status.worker_watch import Seen, WorkerWatches
from cookhouse.server.status.workers import cache_use, num_commands
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
    broken = CounterMetricFamily(
        "cookhouse_hosted_refusals", "Requests that the hosted service would refuse, or that were.", labels=["rule"]
    )
    for rule, number in service.rules.counts.items():
        broken.add_metric([rule], number)
    yield broken
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


_CACHE = {
    "used_bytes": ("cookhouse_worker_cache_used_bytes", "Key-value cache bytes that running sequences use."),
    "bytes": ("cookhouse_worker_cache_bytes", "Allocated key-value cache bytes."),
    "max_bytes": ("cookhouse_worker_cache_max_bytes", "Maximum key-value cache bytes."),
    "num_running_sequences": ("cookhouse_worker_running_sequences", "Running sequences."),
    "num_waiting_sequences": ("cookhouse_worker_waiting_sequences", "Sequences waiting for cache."),
}


def worker_metrics(service: Service, live: Live, seen: Sequence[Seen]) -> Iterator[Metric]:
    """By worker; of models and caches also by base model."""
    yield _info(seen)
    yield from _lives(seen)
    yield from _held(live, seen)
    yield from _told(seen)
    yield from _caches(service, seen)


def _info(seen: Sequence[Seen]) -> Metric:
    info = _gauge("cookhouse_worker_info", "1, with what a worker is.", "node", "trains", "samples")
    for one in seen:
        plan, node = one.worker.plan, one.worker.life.node
        info.add_metric([plan.name, node or "", *(str(does).lower() for does in (plan.trains, plan.samples))], 1)
    return info


def _lives(seen: Sequence[Seen]) -> Iterator[Metric]:
    up = _gauge("cookhouse_worker_up", "1 if it takes commands.")
    draining = _gauge("cookhouse_worker_draining", "1 if it gets no new work, and ends.")
    losses = CounterMetricFamily("cookhouse_worker_losses", "Times it was lost.", labels=["worker"])
    for one in seen:
        up.add_metric([one.worker.name], one.worker.is_up)
        draining.add_metric([one.worker.name], one.worker.is_draining)
        losses.add_metric([one.worker.name], one.worker.life.num_losses)
    yield from (up, draining, losses)


def _held(live: Live, seen: Sequence[Seen]) -> Iterator[Metric]:
    models = _gauge("cookhouse_worker_models", "Models in training on it.", "base_model")
    for (worker, base_model), number in Counter((one.worker, one.model.base_model) for one in live.models).items():
        if worker is not None:
            models.add_metric([worker, base_model], number)
    snapshots = _gauge("cookhouse_worker_snapshots", "Published weights on it.")
    commands = _gauge("cookhouse_worker_queued_commands", "Commands it has not answered.")
    tokens = _gauge("cookhouse_worker_queued_tokens", "Upper bound of tokens in queued commands.")
    for one in seen:
        snapshots.add_metric([one.worker.name], len(one.worker.memory.snapshots))
        commands.add_metric([one.worker.name], num_commands(one.worker))
        tokens.add_metric([one.worker.name], one.worker.num_tokens)
    yield from (models, snapshots, commands, tokens)


def _told(seen: Sequence[Seen]) -> Iterator[Metric]:
    busy = CounterMetricFamily(
        "cookhouse_worker_busy_seconds", "Seconds spent in finished turns.", labels=["worker", "kind"]
    )
    turns = CounterMetricFamily("cookhouse_worker_turns", "Finished turns.", labels=["worker", "kind"])
    memory = _gauge("cookhouse_worker_memory_bytes", "Memory of its process.")
    device = _gauge("cookhouse_worker_device_memory_bytes", "GPU memory it holds.")
    for one in seen:
        if (status := one.status) is None:
            continue
        for turn in status.turns:
            busy.add_metric([one.worker.name, turn.kind], turn.seconds)
            turns.add_metric([one.worker.name, turn.kind], turn.number)
        if status.resident_bytes is not None:
            memory.add_metric([one.worker.name], status.resident_bytes)
        if status.memory.device_bytes is not None:
            device.add_metric([one.worker.name], status.memory.device_bytes)
    yield from (busy, turns, memory, device)


def _caches(service: Service, seen: Sequence[Seen]) -> Iterator[Metric]:
    families = {key: _gauge(name, help_, "base_model") for key, (name, help_) in _CACHE.items()}
    for one in seen:
        for cache in () if one.status is None else one.status.memory.caches:
            use = cache_use(service, cache)
            for key, family in families.items():
                family.add_metric([one.worker.name, use["base_model"]], use[key])
    yield from families.values()


def _gauge(name: str, help_: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_, labels=["worker", *labels])
