"""The page of the reference has every field of a status."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.server.status.conftest import Watched
from tests.server.test_silence import HeldEngine, sample
from tests.waiting import wait_until

from cookhouse.engine.contract import CacheUse, MemoryUse

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "server-status.md"
CACHE = CacheUse(
    base_model="cookhouse/tiny",
    num_used_blocks=1,
    num_blocks=2,
    max_blocks=3,
    block_bytes=1024,
    running={},
    waiting={},
)
FOLDERS = {"journal", "states", "samplers", "loads"}


def names_of(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        yield from content
    for value in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from names_of(value)


def test_every_field_is_in_the_page_and_no_other(watched: Watched, engine: HeldEngine) -> None:
    """Would catch a field that is told and not explained, and one that is explained and gone."""
    engine.memory_use = lambda: MemoryUse(caches=(CACHE,), device_bytes=1, device_total_bytes=2)  # type: ignore[method-assign]
    server = watched.operator
    session_id = server.session()
    model_id = server.model(session_id)
    server.result(server.post("/save_weights", model_id=model_id, seq_id=1, path="kept")["request_id"])
    watched.host.service.pool.workers[0].life.lose("a test")
    engine.free.clear()
    sample(server, session_id, 1)
    wait_until(lambda: watched.status()["workers"][0]["turn"])
    told = set(names_of(watched.status()))
    page, _, _ = PAGE.read_text(encoding="utf-8").partition("## `/metrics`")
    explained = set(re.findall(r"`(\w+)`", page))
    values = {"train", "sample", "other", "null", "COOKHOUSE_API_KEYS", "listed", "max_tokens"}
    states = {"starting", "up", "draining", "restarting"}
    of_several_servers = {"url", "is_this", "is_counted"}
    assert told - FOLDERS - explained == set()
    assert explained - told - values - states - of_several_servers == set()
