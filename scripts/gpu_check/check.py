"""The stages, one after another within a time for all, each result written as it is there."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.gpu_check import figures, packing
from scripts.gpu_check.stage import Outcome, Stage, run
from scripts.gpu_check.table import table

RESULTS = "results.jsonl"
_LAST_SECONDS = 10.0
"""Of the time for all: packing, and the table."""
_FEWEST_SECONDS = 5.0
"""Less is no time for a stage."""


@dataclass(kw_only=True)
class Check:
    """One call."""

    python: str
    environment: Mapping[str, str]
    output: Path
    """For what comes back: few files."""
    scratch: Path
    """For logs and caches as they are written."""
    records: Path
    """Of the benchmarks."""
    ends_at: float
    """In seconds of `time.monotonic`."""
    is_gpu: bool
    notes: list[str] = field(default_factory=list)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By stage, those of an earlier call among them."""
    packed_caches: str = ""
    """A note on the size of the compile caches, and why they were not packed."""
    new_records: set[Path] = field(default_factory=set)

    def run_all(self, stages: Sequence[Stage]) -> None:
        """Run them in their order; whatever happens to one, the next one has its turn."""
        for stage in stages:
            left = self.ends_at - _LAST_SECONDS - time.monotonic()
            limit = min(stage.seconds, left)
            if reason := self._reason_to_skip(stage, left):
                self._write(stage, Outcome(status="skipped", seconds=0.0, why=reason), limit, {})
                continue
            print(f"{stage.number:2} {stage.name}: {stage.about}, at most {limit:.0f} s", flush=True)
            log = self._log(stage)
            log.unlink(missing_ok=True)
            before = self._record_times()
            outcome = run(stage, self.python, self.environment, log, limit)
            found = figures.read_log(log)
            changed = [file for file, at in self._record_times().items() if before.get(file) != at]
            for file in changed:
                found |= figures.read_record(file)
            self._write(stage, outcome, limit, found)
            self.new_records.update(changed)
            self._pack()
            print(f"   {outcome.status} after {outcome.seconds:.1f} s {outcome.why}", flush=True)

    def read_earlier(self, folder: Path) -> None:
        """Take over results and compile caches of an earlier call."""
        file = folder / RESULTS
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
            result = json.loads(line)
            self.results[result["name"]] = result
        self._write_results()
        count = packing.unpack_caches(folder, self.caches)
        self.notes.append(f"{count} files of compile caches and {len(self.results)} results from {folder}")

    @property
    def caches(self) -> Path:
        """Where compilers keep what they made."""
        return self.scratch / "caches"

    def table(self) -> str:
        """All results, in the order of the stages."""
        ordered = sorted(self.results.values(), key=lambda result: result["number"])
        return table(ordered, [*self.notes, *filter(None, [self.packed_caches])])

    def _reason_to_skip(self, stage: Stage, left: float) -> str:
        known = self.results.get("device", {}).get("figures", {})
        broken = stage.needs & known.get("broken", {}).keys()
        if broken:
            return "cannot import " + ", ".join(f"{name} ({known['broken'][name]})" for name in sorted(broken))
        if self.is_gpu and stage.needs and known.get("gpus") == 0:
            return "torch finds no GPU"
        if left < min(_FEWEST_SECONDS, stage.seconds):
            return "the time for all stages was over"
        return ""

    def _log(self, stage: Stage) -> Path:
        folder = self.scratch / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{stage.number:02}-{stage.name}.log"

    def _record_times(self) -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in self.records.glob("*.json")}

    def _write(self, stage: Stage, outcome: Outcome, limit: float, found: Mapping[str, Any]) -> None:
        earlier = self.results.get(stage.name)
        if outcome.status == "skipped" and earlier is not None and earlier["status"] != "skipped":
            return
        self.results[stage.name] = {
            "number": stage.number,
            "name": stage.name,
            "status": outcome.status,
            "seconds": round(outcome.seconds, 2),
            "limit": round(limit, 1),
            "why": outcome.why,
            "figures": dict(found),
        }
        self._write_results()

    def _write_results(self) -> None:
        lines = "".join(json.dumps(result) + "\n" for result in self.results.values())
        temporary = self.output / f".{RESULTS}"
        temporary.write_text(lines, encoding="utf-8")
        temporary.replace(self.output / RESULTS)
        (self.output / "table.txt").write_text(self.table() + "\n", encoding="utf-8")

    def _pack(self) -> None:
        logs = sorted((self.scratch / "logs").glob("*.log"))
        packing.pack_files(self.output / "logs.tar.gz", logs, self.scratch)
        if self.new_records:
            packing.pack_files(self.output / "records.tar.gz", sorted(self.new_records), self.records)
        if self.caches.exists():
            self.packed_caches = packing.pack_caches(self.caches, self.output)
        self._write_results()


def child_environment(site: Path, scratch: Path, commit: str, cores: int) -> dict[str, str]:
    """What stages see: our folder of packages first, caches and models under the scratch folder, no network."""
    caches = scratch / "caches"
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", "")))),
        "PYTHONUNBUFFERED": "1",
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "CUDA_CACHE_PATH": str(caches / "cuda"),
        "XDG_CACHE_HOME": str(caches / "home"),
        "HF_HOME": str(scratch / "hub"),
        "HF_HUB_OFFLINE": "1",
        "TINKER_TELEMETRY": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "COOKHOUSE_BENCH_MODELS": str(scratch / "models"),
        "COOKHOUSE_BENCH_COMMIT": commit,
        "TORCHINDUCTOR_COMPILE_THREADS": str(cores),
    }
