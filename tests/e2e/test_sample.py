"""`cookhouse sample` on a finished run."""

import pytest
from tests.e2e.conftest import Cookhouse, Reference

pytestmark = pytest.mark.slow


def test_a_finished_run_answers(cookhouse: Cookhouse, reference: Reference) -> None:
    done = cookhouse.run("sample", "--run", str(reference.folder), "--max-tokens", "8", stdin="What is 2 plus 2?\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "embedded" not in done.stdout, "only the answer belongs on standard output"
    assert not cookhouse.servers()
