"""What is wrong, in sentences that stand alone."""

from typing import Any

from cookhouse.server.status.troubles import troubles

MODEL = {"model_id": "s:train:0", "tenant": "0badcafe", "base_model": "b", "oldest_seconds": None, "waits_for": None}


def status(*, models: list[dict[str, Any]], samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a server without any other trouble."""
    return {
        "server": {"pause": None, "unserved": None, "held_bytes": 0, "max_held_bytes": 1},
        "servers": None,
        "workers": [],
        "journal": None,
        "disk": {"problem": None, "free_bytes": None},
        "checkpoints": {"problem": None},
        "models": {"listed": models},
        "samples": samples,
        "requests": {"routes": None},
    }


def test_who_waits_is_named() -> None:
    """Would catch a sentence that points at a table, which `cookhouse cluster` does not print."""
    model = {**MODEL, "oldest_seconds": 90.0}
    sample = {"tenant": "c0ffee00", "base_model": "cookhouse/tiny", "oldest_seconds": 300.0}
    idle = {**model, "model_id": "s:train:1", "oldest_seconds": None}
    assert troubles(status(models=[idle, model], samples=[])) == [
        "A request for model s:train:0 of tenant 0badcafe has waited for 90 s."
    ]
    assert troubles(status(models=[idle, model], samples=[sample])) == [
        "A request for samples of cookhouse/tiny of tenant c0ffee00 has waited for 5 min."
    ]
    assert troubles(status(models=[{**model, "oldest_seconds": 59.0}], samples=[])) == []


def test_models_that_wait_for_memory_are_told_in_one_sentence() -> None:
    """Would catch an operator who is not told that training stands still, or is told once for each model."""
    waiting = {**MODEL, "waits_for": "an adapter takes 2.00 GiB and 1.00 GiB of memory are free"}
    assert troubles(status(models=[MODEL, waiting], samples=[])) == [
        "1 model waits to be loaded again, and nothing is lost: an adapter takes 2.00 GiB and 1.00 GiB of memory are "
        "free. See cookhouse cluster add."
    ]
    (both,) = troubles(status(models=[waiting, waiting], samples=[]))
    assert both.startswith("2 models wait to be loaded again")


def test_a_server_that_does_not_answer_is_named() -> None:
    """Would catch sums that lack a server's part, and say nothing of it."""
    row = {"url": "http://gpu-2.lan:8000", "is_counted": False}
    found = status(models=[], samples=[]) | {"servers": [row, {**row, "is_counted": True}, {**row, "url": None}]}
    missing = "does not say what it holds: its sessions, models and queues are missing here."
    assert troubles(found) == [f"The server at http://gpu-2.lan:8000 {missing}", f"Another server {missing}"]
