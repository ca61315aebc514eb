"""What one execution may use."""

import dataclasses

from cookhouse.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one execution; none can be switched off."""

    wall_seconds: float = 6.0
    cpu_seconds: int = 60  # of each process; an execution has wall_seconds in any case
    memory_bytes: int = 1 << 30  # address space of each process, and resident memory of all together
    disk_bytes: int = 64 << 20  # of each file; of the scratch folder where it is a file system of its own
    processes: int = 64  # threads included
    open_files: int = 128
    output_bytes: int = 1 << 20  # of each of the two streams

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) <= 0:
                raise InputError(f"Limits.{field.name} is {getattr(self, field.name)}; it must be positive")
