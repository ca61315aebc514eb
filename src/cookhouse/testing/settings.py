"""Settings of a recipe that nothing reads: it would accept them, record them, and do nothing with them."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import chz

from cookhouse.adapters import Adapters
from cookhouse.recipes import Recipe, make_config, run
from cookhouse.settings import RunSettings
from cookhouse.settings.reading import read_conditions

_ASKS = ("/chz/", "settings/reading.py", "settings/published.py", "settings/facts.py", "recipes/config.py")
"""Code that asks a config for every setting, or for what others depend on, and does nothing with it."""


def unread_settings(recipe: Recipe[Any], settings: Mapping[str, Any]) -> set[str]:
    """Run a recipe on no-ops, in a folder that `settings` name, and tell the settings that nothing in the run read.

    Those that a `read_if` refuses with these settings are left out. What a run of this size on no-ops does not come to
    is among them, such as `on_failed_group` where no group fails.
    """
    names = set(chz.chz_fields(recipe.config_class))
    with _reads(names) as read:
        run(recipe, settings, adapters=Adapters.noop(sinks=[]))
    config = make_config(recipe, settings)
    refused = {
        name for name in names for check in read_conditions(recipe.config_class, name) if not check.is_read(config)
    }
    return names - read - refused


@contextmanager
def _reads(names: set[str]) -> Iterator[set[str]]:
    """The settings that are read meanwhile, of any config; but for checks and defaults."""
    found: set[str] = set()

    def note(config: Any, name: str) -> Any:
        if name in names and name not in found and _is_read_by_a_run():
            found.add(name)
        return object.__getattribute__(config, name)

    RunSettings.__getattribute__ = note  # type: ignore[method-assign]
    try:
        yield found
    finally:
        del RunSettings.__getattribute__


def _is_read_by_a_run() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path, callers = frame.f_code.co_filename, (frame, frame.f_back)
        if path.endswith("settings/defaults.py"):  # `part_of` hands settings on to who reads them
            return any(each is not None and each.f_code.co_name == "part_of" for each in callers)
        if any(part in path for part in _ASKS):
            return False
        frame = frame.f_back
    return True
