"""The settings of a run, each with where its value came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.report import OF_THE_FOLDER, setting_text

SET = "set"
"""The origin of a setting that somebody set, to something else than its default."""


@dataclass(frozen=True, kw_only=True)
class RecordedSetting:
    """A setting as config.json has it."""

    name: str
    value: Any
    origin: str | None
    """`set`, or which default; None: the run has not recorded it."""

    @property
    def text(self) -> str:
        """Its value as a person reads it."""
        return setting_text(self.value)

    @property
    def is_set(self) -> bool:
        return self.origin == SET


def recorded_settings(record: Mapping[str, Any]) -> list[RecordedSetting]:
    """All of a run but those that say where it lies, those that were set first; `record` is what config.json holds."""
    config, origins = record.get("config", {}), record.get("origins")
    known = origins if isinstance(origins, Mapping) else {}
    every = [
        RecordedSetting(name=name, value=value, origin=_text(known.get(name)))
        for name, value in config.items()
        if name not in OF_THE_FOLDER
    ]
    return sorted(every, key=lambda setting: not setting.is_set)


def has_origins(settings: Sequence[RecordedSetting]) -> bool:
    """True if the run recorded where its settings came from."""
    return any(setting.origin is not None for setting in settings)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
