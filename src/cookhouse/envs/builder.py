"""Environments of a config class, by the name of which a run asks for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import chz

from cookhouse.envs.dataset import EnvConfig
from cookhouse.envs.second_model import OpenSampler, TwoModelBuilder
from cookhouse.errors import UnknownNameError
from cookhouse.rl import RLDatasetBuilder
from cookhouse.settings import EnvironmentSettings, part_of


@dataclass(frozen=True)
class ConfigBuilder:
    """Makes environments of a config class; what the run has settings for, it takes from there."""

    config_class: type[EnvConfig]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are these, whatever the run's are."""

    def __call__(self, settings: EnvironmentSettings, open_sampler: OpenSampler, **own: Any) -> RLDatasetBuilder:
        known = chz.chz_fields(self.config_class)
        for name in own:
            if name not in known:
                raise UnknownNameError(f"setting of {self.config_class.__name__}", name, known)
        config: Any = part_of(self.config_class, settings, **self.fixed, **own)
        takes_sampler = "answerer_model" in known or "opponent_model" in known
        return TwoModelBuilder(config=config, open_sampler=open_sampler) if takes_sampler else config

    def reads(self, setting: str) -> bool:
        """True if the environments depend on a setting of the run."""
        is_known = setting in chz.chz_fields(self.config_class)
        return is_known and setting not in self.fixed and setting not in self.config_class.unread
