"""Frames of a worker's threads, taken by the one call that brings events to the server."""

import threading

from cookhouse.engine.transports.ray.actor import FrameBox


def test_all_that_was_put_comes_in_order_and_then_the_end() -> None:
    """Would catch an event that is lost between two takes, and a stream that never ends."""
    box = FrameBox()
    taken: list[bytes] = []
    taker = threading.Thread(target=lambda: taken.extend(box.take()))
    taker.start()
    expected = b""
    for index in range(500):
        piece = f"{index} ".encode()
        expected += piece
        box.put([memoryview(piece)])
    box.close()
    taker.join()
    assert b"".join(taken) == expected
    box.put([memoryview(b"more")])
    assert list(box.take()) == []
