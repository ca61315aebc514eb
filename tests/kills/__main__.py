"""Kills at random moments, as many as one likes: python -m tests.kills --moments 50 --seed 1.

Five kills a run, of one setting after the other, every other time with states taken all the time. It says of each kill
where it hit, goes on after a failure, and ends with exit code 1 if there was one.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from tests.kills.killing_server import OFTEN, killing_module
from tests.kills.nodes import Nodes
from tests.kills.runs import Outcome, Setting, random_moments, run
from tests.server.conftest import Cluster

SETTINGS = (
    Setting(loops=("supervised", "rl"), precision="float32", deterministic=True),
    Setting(loops=("supervised",), precision="float32", deterministic=False),
    Setting(loops=("supervised", "rl"), precision="bfloat16", deterministic=True),
    Setting(loops=("rl",), precision="bfloat16", deterministic=False),
    Setting(loops=("rl",), precision="float32", deterministic=False),
    Setting(loops=("supervised",), precision="bfloat16", deterministic=False),
)
KINDS = ("workers", "trainers", "samplers")


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%X')} {text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--moments-per-run", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--setting", action="append", choices=[one.name for one in SETTINGS], help="default: all")
    parser.add_argument("--folder", type=Path, help="where to leave all files; default: a folder that is deleted")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, help="as of `cookhouse serve`; default: one worker that does all")
    parser.add_argument(
        "--ray", action="store_true", help="on a cluster of one node per worker; nodes and its head are killed too"
    )
    parser.add_argument("--drains", action="store_true", help="some moments drain a worker, and add another")
    parser.add_argument("--servers", type=int, default=1, help="which share a database of PostgreSQL's, and a folder")
    options = parser.parse_args()
    pool = tuple((kind, number) for kind in KINDS if (number := getattr(options, kind)) is not None)
    settings = [
        replace(one, pool=pool, num_servers=options.servers)
        for one in SETTINGS
        if one.name in (options.setting or [one.name])
    ]
    with tempfile.TemporaryDirectory() as temporary:
        return _kill(options, settings, options.folder or Path(temporary))


def _kill(options: argparse.Namespace, settings: list[Setting], folder: Path) -> int:
    with ExitStack() as stack:
        number = max(setting.num_workers for setting in settings)
        nodes = stack.enter_context(Nodes(number)) if options.ray else None
        cluster = stack.enter_context(closing(Cluster())) if options.servers > 1 else None
        return _kill_on(options, settings, folder, nodes, cluster)


def _kill_on(
    options: argparse.Namespace, settings: list[Setting], folder: Path, nodes: Nodes | None, cluster: Cluster | None
) -> int:
    whole: dict[Setting, Outcome] = {}
    num_done = num_failed = num_runs = 0
    while num_done < options.moments:
        cycle, place = divmod(num_runs, len(settings))
        setting = settings[place]
        if setting not in whole:
            whole[setting] = run(folder / f"whole-{setting.name}", setting, nodes=nodes, cluster=cluster)
            assert not whole[setting].errors, whole[setting].errors
            say(f"{setting.name}: {whole[setting].num_answers} answers, undisturbed")
        num_moments = min(options.moments_per_run, options.moments - num_done)
        seed = f"{options.seed} {num_runs}"
        num_answers = whole[setting].num_answers
        moments = random_moments(
            seed,
            num_moments,
            num_answers,
            setting.num_workers,
            num_servers=setting.num_servers,
            has_nodes=options.ray,
            has_drains=options.drains,
        )
        settings_of_server: Mapping[str, float] = OFTEN if (cycle + place) % 2 else {}
        say(f"run {num_runs} of {setting.name}, seed {seed!r}, server with {settings_of_server or 'its own settings'}")
        try:
            module = killing_module(settings_of_server)
            outcome = run(
                folder / f"run-{num_runs}",
                setting,
                moments,
                say=lambda text: say(f"  {text}"),
                module=module,
                nodes=nodes,
                cluster=cluster,
            )
            found = outcome.differences(whole[setting], setting.loops)
        except AssertionError as error:
            found = [str(error)]
        say("\n    ".join(["  FAILED:", *found]) if found else "  equal to the bit")
        num_failed += bool(found)
        num_done += num_moments
        num_runs += 1
    say(f"{num_done} kills in {num_runs} runs, of which {num_failed} failed")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
