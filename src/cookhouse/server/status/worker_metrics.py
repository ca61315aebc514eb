"""The figures of each worker for Prometheus. What a worker has not said is left out."""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cookhouse.server.service import Service
from cookhouse.server.status.figures import Live
from cookhouse.server.status.worker_watch import Seen
from cookhouse.server.status.workers import cache_use, num_commands

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
