"""What tests of environments share."""

import pytest

from cookhouse.envs import Prompting

TINY = "cookhouse/tiny"


@pytest.fixture
def prompting() -> Prompting:
    return Prompting(model_name=TINY, renderer_name="human_ai")


@pytest.fixture
def chat() -> Prompting:
    """A format whose answers may have several lines."""
    return Prompting(model_name=TINY, renderer_name="qwen3_instruct")
