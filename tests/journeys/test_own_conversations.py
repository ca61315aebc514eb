"""Somebody with conversations of their own, who wants a model to chat with, to compare, and to take along."""

from collections.abc import Callable

import pytest
from tests.journeys.journey import Journey


@pytest.mark.slow
def test_own_conversations(begin: Callable[..., Journey], write_transcripts: bool) -> None:
    journey = begin("own-conversations", "Own conversations, and a model to chat with", "bakery")
    journey.run("cookhouse doctor")
    journey.check(write=write_transcripts)
