"""Check and measure cookhouse on a GPU, from wheels, without a network, in the minutes there are.

    python3 -m scripts.gpu_check build/gpu-wheels --output results             # the first call: 9 minutes
    python3 -m scripts.gpu_check build/gpu-wheels --output again --resume results --minutes 4
    python3 -m scripts.gpu_check build/gpu-wheels --output again --resume results --only mfu,8b

Run it in the root of the repository, with the Python that has torch; `make gpu-wheels` makes the folder, anywhere.
What that Python lacks goes into a folder of its own. Each stage is a process with a limit of time: one that hangs,
crashes or cannot import costs that and nothing else. The output folder has at most eight files of 16 MiB: results.jsonl
and table.txt, which are written after each stage, and archives of logs, of the benchmarks' records, and of what was
compiled, which --resume takes along.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.gpu_check import wheels
from scripts.gpu_check.check import Check, child_environment
from scripts.gpu_check.packing import set_folder
from scripts.gpu_check.stage import Stage
from scripts.gpu_check.stages import all_stages

_RECORDS = Path("bench/results")


def chosen(stages: Sequence[Stage], only: str, passed: frozenset[str]) -> Sequence[Stage]:
    """Those that are named, by name or number, or all that have not passed.

    Raises:
        SystemExit: there is no such stage.
    """
    if not only:
        return [stage for stage in stages if stage.name not in passed]
    wanted = [each.strip() for each in only.split(",")]
    known = {key: stage for stage in stages for key in (stage.name, str(stage.number))}
    if strange := [each for each in wanted if each not in known]:
        sys.exit(f"error: no stage {', '.join(strange)}; there are {', '.join(stage.name for stage in stages)}")
    names = {known[each].name for each in wanted}
    return [stage for stage in stages if stage.name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a stage did not pass."""
    began_at = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, nargs="?", help="the folder that `make gpu-wheels` made")
    parser.add_argument("--output", type=Path, default=Path("build/gpu-check"))
    parser.add_argument("--minutes", type=float, default=9.0, help="for all of it; default: %(default)s")
    parser.add_argument("--only", default="", metavar="STAGES", help="names or numbers, separated by commas")
    parser.add_argument(
        "--resume", type=Path, metavar="OUTPUT", help="of an earlier call: what passed there is left out"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: rehearse with tiny models")
    parser.add_argument("--list", action="store_true", help="print the stages and end")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path(tempfile.gettempdir()) / "cookhouse-gpu-check",
        help="the same path in later calls, as Triton's cache names its files by it; default: %(default)s",
    )
    options = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    stages = all_stages(options.device, min(4, max(1, cores // 2)))
    if options.list:
        for stage in stages:
            print(f"{stage.number:2} {stage.name:12} {stage.seconds:4.0f} s  {stage.about}")
        return 0
    if options.wheels is None:
        parser.error("name the folder of wheels")
    options.output.mkdir(parents=True, exist_ok=True)
    scratch = set_folder(options.scratch)
    site = scratch / "site"
    check = Check(
        python=sys.executable,
        environment=child_environment(site, scratch, wheels.commit(options.wheels), cores),
        output=options.output,
        scratch=scratch,
        records=_RECORDS,
        ends_at=began_at + 60 * options.minutes,
        is_gpu=options.device == "cuda",
    )
    if options.resume is not None:
        check.read_earlier(options.resume)
    passed = frozenset(name for name, result in check.results.items() if result["status"] == "passed")
    try:
        check.notes.append("installed " + wheels.install(options.wheels, site, sys.executable, os.environ))
    except RuntimeError as error:
        # What is there already may still do for some stages.
        check.notes.append(f"installation failed: {error}")
    print(check.notes[-1], flush=True)
    selected = chosen(stages, options.only, passed)
    check.run_all(selected)
    check.notes.append(f"{(time.monotonic() - began_at) / 60:.1f} of {options.minutes:g} minutes")
    print(check.table())
    return int(any(check.results[stage.name]["status"] != "passed" for stage in selected))


if __name__ == "__main__":
    sys.exit(main())
