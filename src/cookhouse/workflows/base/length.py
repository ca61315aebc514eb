"""Length of a run, and the settings that decide it."""

from typing import Protocol

from cookhouse.settings.defaults import has_default


class LengthConfig(Protocol):
    """Settings that `steps_notes` reads."""

    @property
    def max_steps(self) -> int | None: ...
    @property
    def num_epochs(self) -> int: ...


def steps_notes(config: LengthConfig, steps_per_epoch: int) -> list[str]:
    """Note on the setting of a run's length that changes nothing, where somebody set it."""
    steps, epochs = config.max_steps, config.num_epochs
    if steps is None:
        return []
    if steps > steps_per_epoch * epochs and not has_default(config, "max_steps"):
        return [
            f"max_steps={steps:,} changes nothing: num_epochs={epochs} ends after {steps_per_epoch * epochs:,} steps"
        ]
    # As many epochs as steps are there for the steps, however little data there is.
    if steps <= steps_per_epoch * (epochs - 1) and epochs != steps and not has_default(config, "num_epochs"):
        return [
            f"num_epochs={epochs} changes nothing: max_steps={steps:,} ends in epoch {-(-steps // steps_per_epoch)}, "
            f"and each has {steps_per_epoch:,} steps"
        ]
    return []
