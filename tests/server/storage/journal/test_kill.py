"""Catches what a process that is killed had acknowledged and not kept, and halves of commits."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.server.storage.journal.examples import Journal, body
from tests.server.storage.journal.writer import NUM_AT_ONCE, NUM_KEPT, pair

MOMENTS = (*range(1, 12), *range(30, 64, 3))
"""Before and behind each sync, statement and acknowledgement of a group; the later ones delete, too."""


def test_a_kill_leaves_all_that_was_acknowledged_and_no_half(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.server.storage.journal.writer", str(tmp_path), *map(str, MOMENTS)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[4])
    num_added = [_check(tmp_path / str(moment)) for moment in MOMENTS]
    assert num_added[0] == 0
    assert num_added[-1] > NUM_KEPT * NUM_AT_ONCE  # so that states have covered some


def _check(folder: Path) -> int:
    words = [line.split() for line in (folder / "acknowledged.txt").read_text().splitlines()]
    added = {int(number) for what, number in words if what == "added"}
    dropping = {int(number) for what, number in words if what == "dropping"}
    journal = Journal(folder)
    with closing(journal.store):
        kept = set(journal.request_ids())
        numbers = {int(request_id.partition("-")[2]) for request_id in kept}
        assert kept == {change.entry.request_id for number in numbers for change in pair(number)}, "half of a commit"
        assert added - dropping <= numbers, "it was acknowledged"
        journal.run(lambda group: group.sweep())
        for number in numbers:
            small, large = pair(number)
            assert journal.reader.body(small.entry.request_id) == body(number)
            assert journal.reader.body(large.entry.request_id) == large.body
        assert len(journal.files()) <= len(numbers)
    return len(added)
