"""`cookhouse sample` on a finished run."""

import shutil

import pytest
from tests.e2e.conftest import Cookhouse, Reference

from cookhouse.assets import ADAPTER_FOLDERS

pytestmark = pytest.mark.slow


def test_a_finished_run_answers(cookhouse: Cookhouse, reference: Reference) -> None:
    done = cookhouse.run("sample", str(reference.folder), "--max-tokens", "8", stdin="What is 2 plus 2?\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "embedded" not in done.stdout, "only the answer belongs on standard output"
    assert not cookhouse.servers()


def test_a_peft_folder_answers(cookhouse: Cookhouse) -> None:
    # Catches an engine that is started without the adapter that it is to answer with.
    folder = ADAPTER_FOLDERS["cookhouse/tiny-arithmetic"]
    shutil.copytree(folder, cookhouse.folder / "mine")
    asked = ("Compute 88 + 46.", "--renderer", "human_ai")
    answers = [cookhouse.run("sample", name, *asked) for name in ("cookhouse/tiny-arithmetic", "./mine")]
    assert [(done.returncode, done.stdout.strip()) for done in answers] == [(0, "134")] * 2, answers[1].stderr
    assert not cookhouse.servers()
