"""A random program, of any size: python -m tests.simulation --seed 7 --clients 64 --requests 1000000.

Or many of them, one after another: --seed 1000 --num-seeds 500.

Its server has a journal, and is killed time and again; `--without-journal` it is not, and only its engine is lost.
"""

import argparse
import logging
import time
from dataclasses import asdict, fields, replace

from cookhouse.server.pool.plans import plans_of
from tests.simulation.program import FAULTS, Surroundings, simulate


def main() -> None:
    """Print what came of it, and what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-seeds", type=int, default=1, help="programs: of --seed and those that follow it")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--without-journal", action="store_true")
    parser.add_argument("--num-workers", type=int, help="each trains and samples; default: 1")
    parser.add_argument("--num-trainers", type=int, help="with --num-samplers: they do one of the two")
    parser.add_argument("--num-samplers", type=int)
    for field in fields(FAULTS):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=float,
            default=getattr(FAULTS, field.name),
            help="without a journal: see FaultRates; with one, the seed decides",
        )
    options = parser.parse_args()
    plans = plans_of(workers=options.num_workers, trainers=options.num_trainers, samplers=options.num_samplers)
    rates = replace(FAULTS, **{name: getattr(options, name) for name in asdict(FAULTS)})
    surroundings = Surroundings(rates=rates) if options.without_journal else None
    logging.basicConfig()
    for seed in range(options.seed, options.seed + options.num_seeds):
        began_at, used = time.perf_counter(), time.process_time()
        report = simulate(
            seed,
            num_clients=options.clients,
            num_requests=options.requests,
            surroundings=surroundings,
            plans=plans,
        )
        used = time.process_time() - used
        print(f"seed {seed}")  # noqa: T201
        for name, number in sorted(report.counts.items()):
            print(f"{number:10} {name}")  # noqa: T201
        took = time.perf_counter() - began_at
        print(f"digest {report.digest}")  # noqa: T201
        print(f"{report.virtual_seconds:,.0f} simulated seconds took {took:.1f}, {used:.1f} of processor time")  # noqa: T201
        print(f"{1e6 * used / report.counts['requests']:.0f} µs of processor time a request")  # noqa: T201


if __name__ == "__main__":
    main()
