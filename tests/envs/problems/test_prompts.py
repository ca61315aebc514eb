"""Prompts of any data set: what of a row's answer earns the reward."""

import json
from pathlib import Path

import pytest
from tests.envs.answers import answer_with, configured

from cookhouse.envs.problems.prompts import PromptsConfig

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("said", ["<think>\nfive\n</think>\n\n5", "5"])
async def test_reasoning_in_a_row_s_answer_is_no_part_of_it(said: str, tmp_path: Path) -> None:
    """Catches a reward of 0 for every right answer, since only the model's answer lost its reasoning."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"input": "2 + 3?", "output": "<think>two and three</think>\n5"}) + "\n")
    config = configured(
        PromptsConfig, renderer_name="qwen3", dataset_path=str(path), batch_size=1, group_size=1, seed=0
    )
    train, _ = await config.build()
    [builder] = train.get_batch(0)
    [env] = await builder.make_envs()
    result = await answer_with(env, config.prompting, said)
    assert result.reward == 1.0
    assert result.logs["expected"] == "5"


async def test_what_was_asked_is_shown_with_the_conversation_before_it(tmp_path: Path) -> None:
    """Catches a held-out answer under "Where?" alone."""
    said = ("system", "Be brief."), ("user", "We opened a shop."), ("assistant", "Congratulations!"), ("user", "Where?")
    messages = [{"role": role, "content": text} for role, text in said]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": [*messages, {"role": "assistant", "content": "Here."}]}) + "\n")
    config = configured(PromptsConfig, dataset_path=str(path), batch_size=1, group_size=1, seed=0)
    train, _ = await config.build()
    [builder] = train.get_batch(0)
    [env] = await builder.make_envs()
    result = await answer_with(env, config.prompting, "Here.")
    assert result.logs["question"].splitlines() == [f"{role}: {text}" for role, text in said]
