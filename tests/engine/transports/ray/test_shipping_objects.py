"""Files as objects of Ray's, without a cluster: each is put once, and nobody waits for another's."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]
SECONDS = 30.0


class FakePut:
    """In place of `ray.put`; what is put is its own reference."""

    def __init__(self) -> None:
        self.put: list[bytes] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.error: Exception | None = None

    def __call__(self, data: bytes) -> bytes:
        self.put.append(data)
        if data.startswith(b"slow"):
            assert self.is_open.wait(SECONDS)
        if self.error is not None:
            raise self.error
        return data


@pytest.fixture
def ray_put(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePut]:
    fake = FakePut()
    monkeypatch.setattr("ray.put", fake)
    monkeypatch.setattr("cookhouse.engine.transports.ray.shipping.PART_BYTES", 8)
    yield fake
    fake.is_open.set()


def cache(num_parts: int) -> Any:
    from cookhouse.engine.transports.ray.shipping import ObjectCache

    return ObjectCache(8 * num_parts)


def file(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def test_two_workers_put_a_file_once(ray_put: FakePut, tmp_path: Path) -> None:
    """Would catch weights that fill the object store once for each worker that wants them."""
    objects, path = cache(4), file(tmp_path, "a", b"slow 1, slow 2.")
    ray_put.is_open.clear()
    with ThreadPoolExecutor(2) as workers:
        both = [workers.submit(lambda: list(objects.parts(path))) for _ in range(2)]
        ray_put.is_open.set()
        first, second = (one.result(SECONDS) for one in both)
    assert first == second
    assert [(part.offset, part.reference, part.sums[0]) for part in first] == [(0, b"slow 1, ", 8), (8, b"slow 2.", 7)]
    assert ray_put.put == [b"slow 1, ", b"slow 2."]


def test_nobody_waits_for_another_s_file(ray_put: FakePut, tmp_path: Path) -> None:
    """Would catch all transfers of all workers waiting for one that reads a slow disk."""
    objects = cache(4)
    slow, quick = file(tmp_path, "slow", b"slow"), file(tmp_path, "quick", b"quick")
    ray_put.is_open.clear()
    with ThreadPoolExecutor(2) as workers:
        waits = workers.submit(lambda: list(objects.parts(slow)))
        assert workers.submit(lambda: list(objects.parts(quick))).result(SECONDS)[0].reference == b"quick"
        assert not waits.done()
        ray_put.is_open.set()
        assert waits.result(SECONDS)[0].reference == b"slow"


def test_those_asked_for_last_are_kept(ray_put: FakePut, tmp_path: Path) -> None:
    """Would catch an object store that fills up with weights of yesterday."""
    objects = cache(2)
    for name in ("a", "b", "a", "c", "a", "b"):
        list(objects.parts(file_once(tmp_path, name)))
    assert ray_put.put == [b"a", b"b", b"c", b"b"]


def file_once(folder: Path, name: str) -> Path:
    return folder / name if (folder / name).exists() else file(folder, name, name.encode())


def test_a_file_that_could_not_be_put_is_tried_again(ray_put: FakePut, tmp_path: Path) -> None:
    """Would catch a store that was full once and is full for ever."""
    objects, path = cache(2), file(tmp_path, "a", b"a")
    ray_put.error = OSError("full")
    with pytest.raises(OSError, match="full"):
        list(objects.parts(path))
    ray_put.error = None
    assert [part.reference for part in objects.parts(path)] == [b"a"]
