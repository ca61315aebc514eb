"""Resources that a worker takes of a node: what was asked for, and for what was left open a share. Knows no Ray."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cookhouse.errors import InputError

Amounts = Mapping[str, float]
"""Of resources, by Ray's names for them; memory in bytes."""
WAY_OUT = "ask for less with --worker-cpus, --worker-gpus or --worker-memory-bytes, start fewer workers, or add a node"


_ROUNDING = 1e-9
"""Ten tenths of a GPU are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Resources that a worker takes of a node."""

    num_cpus: int | None
    """None: a GPU's worker one, and others a share of the cluster's."""
    num_gpus: float | None
    """None: one, where the cluster has any."""
    memory_bytes: int | None
    num_workers: int = 1
    """Those that share the cluster, which a choice that was left open takes into account."""


def bundle_of(needs: Needs, totals: Sequence[Amounts]) -> dict[str, float]:
    """Resources that each of the workers takes, for nodes that have so much in all.

    Raises:
        InputError: there is no room for so many.
    """
    num_gpus = needs.num_gpus
    if num_gpus is None:
        num_gpus = 1 if any(total.get("GPU", 0) >= 1 for total in totals) else 0
    beside: dict[str, float] = {"GPU": num_gpus} if num_gpus else {}
    if needs.memory_bytes is not None:
        beside["memory"] = float(needs.memory_bytes)
    num_cpus = needs.num_cpus or (1 if num_gpus else _cpu_share(beside, totals, needs.num_workers))
    bundle = {"CPU": float(num_cpus), **beside}
    num_places = sum(_room(bundle, total) for total in totals)
    if num_places == 0:
        raise _no_node(bundle, totals)
    if num_places < needs.num_workers:
        raise _too_many(needs.num_workers, bundle, num_places, totals, "each")
    return bundle


def check_fits(bundle: Amounts, totals: Sequence[Amounts]) -> None:
    """
    Raises:
        InputError: no node has so much, free or not.
    """
    if not any(_room(bundle, total) for total in totals):
        raise _no_node(bundle, totals)


def memory_share(bundle: Amounts, total: Amounts) -> int | None:
    """Bytes of a node's memory for a worker: those reserved, or with a part of the cores the same part; None: all."""
    if "memory" in bundle:
        return int(bundle["memory"])
    part = bundle["CPU"] / max(total.get("CPU", 0), 1)
    return int(total["memory"] * part) if part < 1 and "memory" in total else None


def device_of(bundle: Amounts, device: str | None) -> str | None:
    """The device of a worker, where one was named or none was: Ray hides no GPU from one that has none.

    Raises:
        InputError: it has no GPU, and is to compute on one.
    """
    if "GPU" in bundle:
        return device
    if device not in (None, "cpu"):
        raise InputError(
            f"device {device!r} was asked for, and a worker has no GPU of Ray's; use --device cpu, or --worker-gpus 1 "
            "on a cluster that has GPUs"
        )
    return "cpu"


def asks(bundle: Amounts) -> str:
    return f"a worker is to have {in_words(bundle)}"


def figures(totals: Sequence[Amounts]) -> str:
    return f"its {len(totals)} nodes have {'; '.join(map(in_words, totals))}"


def in_words(amounts: Amounts) -> str:
    words = [f"{amounts.get('CPU', 0):g} CPUs", f"{amounts.get('GPU', 0):g} GPUs"]
    if "memory" in amounts:
        words.append(f"{amounts['memory'] / 2**30:.1f} GiB")
    return ", ".join(words)


def _cpu_share(beside: Amounts, totals: Sequence[Amounts], num_workers: int) -> int:
    """The most cores that so many workers can have each: a worker has those of one node."""
    for num_cpus in range(int(max((total.get("CPU", 0) for total in totals), default=0)), 0, -1):
        if sum(_room({"CPU": num_cpus, **beside}, total) for total in totals) >= num_workers:
            return num_cpus
    least = {"CPU": 1.0, **beside}
    num_places = sum(_room(least, total) for total in totals)
    raise _too_many(num_workers, least, num_places, totals, "each at least")


def _no_node(bundle: Amounts, totals: Sequence[Amounts]) -> InputError:
    return InputError(f"{asks(bundle)}, and no node of Ray's cluster has as much: {figures(totals)}; {WAY_OUT}")


def _too_many(num_workers: int, bundle: Amounts, num_places: int, totals: Sequence[Amounts], how: str) -> InputError:
    return InputError(
        f"{num_workers} workers are to have {in_words(bundle)} {how}, and Ray's cluster has room for {num_places}: "
        f"{figures(totals)}; {WAY_OUT}"
    )


def _room(bundle: Amounts, total: Amounts) -> int:
    """Workers that a node has room for."""
    return min(_times(name, amount, total.get(name, 0)) for name, amount in bundle.items())


def _times(name: str, amount: float, total: float) -> int:
    """Number of times that a node has an amount; a part of a GPU lies on one."""
    if name == "GPU" and amount < 1:
        return int(total) * math.floor(1 / amount + _ROUNDING)
    return math.floor(total / amount + _ROUNDING)
