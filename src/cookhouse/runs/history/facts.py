"""Facts of a run from run.json, in words: for a terminal and for pages."""

import re
from collections.abc import Mapping
from datetime import datetime

from cookhouse.runs.history.launches import History
from cookhouse.runs.history.machine import Machine

_EMBEDDED = re.compile(r"the (?:local|embedded) engine: (?P<device>.+), (?P<precision>\w+)")
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}


def facts_of(history: History) -> dict[str, str]:
    """State, times, machine, service and versions by what they are; what is not known is left out."""
    last = history.launches[-1]
    count = len(history.launches)
    return {
        "state": ": ".join(filter(None, (history.status, history.error or last.stopped))),
        "started": when(history.started_at),
        **({} if history.is_running else {"ended": when(history.last_at)}),
        "duration": duration(history.seconds) + (f", in {count} launches" if count > 1 else ""),
        **({} if last.machine is None else {"machine": str(last.machine)}),
        **({} if last.service is None else {"service": last.service}),
        **({} if history.usage is None else {"usage": usage_of(history.usage, history)}),
        **({} if last.registered_model is None else {"registered as": last.registered_model}),
        **(
            {"libraries": ", ".join(f"{name} {version}" for name, version in last.packages.items())}
            if last.packages
            else {}
        ),
    }


def usage_text(usage: Mapping[str, float]) -> str:
    """Usage that a service counted, in words: `1,200 tokens trained, 300 prefill, 40 sampled; 2 s of the engine`."""
    kinds = {"trained": "trained", "scored": "forward-only", "prompt": "prefill", "sampled": "sampled"}
    counts = {words: round(usage.get(f"{kind}_tokens", 0)) for kind, words in kinds.items()}
    parts = [f"{count:,} {words}" for words, count in counts.items() if count] or ["0"]
    tokens = ", ".join([parts[0].replace(" ", " tokens ", 1) if " " in parts[0] else "0 tokens", *parts[1:]])
    engine = f"; {duration(usage['engine_seconds'])} of the engine" if "engine_seconds" in usage else ""
    return tokens + engine


def usage_of(usage: Mapping[str, float], history: History) -> str:
    """As `usage_text`, with the launches that it leaves out."""
    left_out, count = history.num_unreported, len(history.launches)
    if not left_out:
        return usage_text(usage)
    of = "of the last launch alone" if left_out == count - 1 else f"of {count - left_out} of {count} launches"
    return f"{usage_text(usage)} ({of}; one that was killed reports none)"


def place_of(history: History) -> str:
    """Duration and machine, as the end of a sentence: `in 20 s, on 2 cores of an AMD EPYC, fp32`."""
    last = history.launches[-1]
    took = f"in {duration(history.seconds)}"
    engine = _EMBEDDED.fullmatch(last.service or "")
    if engine is None or last.machine is None:
        return ", ".join(filter(None, (took, last.service)))
    is_cpu = engine["device"].startswith("CPU")
    device = _cores(last.machine) if is_cpu else _one(engine["device"])
    return f"{took}, on {device}, {_PRECISIONS.get(engine['precision'], engine['precision'])}"


def _cores(machine: Machine) -> str:
    return f"{machine.cores} core{'s' * (machine.cores != 1)} of {_one(machine.processor)}"


def _one(name: str) -> str:
    is_an = name[:1] in "AEIOUaeiou" or name.startswith("NVIDIA")
    return f"a{'n' * is_an} {name}"


def when(moment: datetime) -> str:
    """A moment in local time, to the minute."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M %Z")


def duration(seconds: float) -> str:
    """As a person reads it: 4 s, 3:07 or 12:03:07."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
