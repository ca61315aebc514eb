"""Catches what a process that is killed had acknowledged and not kept, and halves of commits."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.journal.examples import Journal, body
from tests.server.journal.writer import pair
from tests.waiting import next_line


@pytest.mark.parametrize("num_lines", [0, 7, 150])
def test_a_kill_leaves_all_that_was_acknowledged_and_no_half(tmp_path: Path, num_lines: int) -> None:
    command = [sys.executable, "-m", "tests.server.journal.writer", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        lines = [next_line(process) for _ in range(num_lines + 1)]
        process.kill()
        assert process.stdout is not None
        lines += process.stdout.read().splitlines()
    words = [line.split() for line in lines]
    added = {int(number) for what, number in words if what == "added"}
    dropping = {int(number) for what, number in words if what == "dropping"}
    journal = Journal(tmp_path)
    with closing(journal.store):
        kept = set(journal.request_ids())
        numbers = {int(request_id.partition("-")[2]) for request_id in kept}
        assert kept == {change.entry.request_id for number in numbers for change in pair(number)}
        assert added - dropping <= numbers
        for number in numbers:
            small, large = pair(number)
            assert journal.reader.body(small.entry.request_id) == body(number)
            assert journal.reader.body(large.entry.request_id) == large.body
        journal.run(lambda group: group.sweep())
        assert all(journal.reader.body(request_id) for request_id in kept)
