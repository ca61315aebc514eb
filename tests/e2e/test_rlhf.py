"""`cookhouse run rlhf` on the local engine, as it is without any setting."""

import json
import signal
from typing import Any

import pytest
from tests.e2e.conftest import Cookhouse
from tests.waiting import wait_until

pytestmark = pytest.mark.long

_PATIENCE_SECONDS = 600.0


def metrics(cookhouse: Cookhouse, name: str) -> list[dict[str, Any]]:
    file = cookhouse.folder / "runs" / "polite" / name / "metrics.jsonl"
    return (
        [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    )


def test_the_preference_model_learns_the_reward_raises_its_score_and_the_rule_follows(cookhouse: Cookhouse) -> None:
    # Catches a preference model that goes by position, a reward of the wrong sign, and weights that are not handed on;
    # stopped in its last run, the pipeline goes on there.
    process = cookhouse.start("run", "rlhf", "log_path=runs/polite")
    wait_until(lambda: len(metrics(cookhouse, "rl")) >= 3 or process.poll() is not None, patience=_PATIENCE_SECONDS)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=_PATIENCE_SECONDS)
    again = cookhouse.run(
        *("run", "rlhf", "log_path=runs/polite", "behavior_if_log_dir_exists=resume"), patience=_PATIENCE_SECONDS
    )
    assert again.returncode == 0, again.stderr
    assert "the preference model's win share goes from" in " ".join(again.stdout.split())
    found = json.loads((cookhouse.folder / "runs" / "polite" / "result.json").read_text())["metrics"]
    assert found["preference_model/test/accuracy"] >= 0.95
    assert found["preference_model/test/order_disagreement"] <= 0.1
    rows = metrics(cookhouse, "rl")
    before, after = rows[0], rows[-1]
    assert after["test/env/all/win_share"] > before["test/env/all/win_share"] + 0.1
    assert after["test/env/all/rule"] > before["test/env/all/rule"] + 0.2
    assert after["test/env/all/agreement"] >= 0.8
    page = (cookhouse.folder / "runs" / "polite" / "rl" / "report.html").read_text()
    assert "Preference model and rule" in page
