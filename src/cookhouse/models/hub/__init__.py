"""Hubs: where models and tokenizers come from by name, and where folders of them go."""

from cookhouse.models.hub.current import current_hub, hub_in_use
from cookhouse.models.hub.hugging_face import HuggingFaceHub
from cookhouse.models.hub.noop import NoopHub
from cookhouse.models.hub.port import HubClient, HubPart, check_name, is_whole

__all__ = [
    "HubClient",
    "HubPart",
    "HuggingFaceHub",
    "NoopHub",
    "check_name",
    "current_hub",
    "hub_in_use",
    "is_whole",
]
