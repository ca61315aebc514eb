"""Any agent as an environment: a rollout has an address of its own, and what is asked and said there is recorded as
the tokens that were sampled.
"""

from cookhouse.agents.endpoint import Address
from cookhouse.agents.env import Agent, AgentEnv
from cookhouse.agents.rollout import AgentError

__all__ = ["Address", "Agent", "AgentEnv", "AgentError"]
