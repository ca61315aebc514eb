"""Environments by name, brought by a user, and several in one run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cookhouse.envs import ENVIRONMENTS, ArithmeticEnv, message_environments, parse_environments
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.rl import MessageStepResult
from cookhouse.settings import EnvironmentSettings

pytestmark = pytest.mark.anyio

SETTINGS = EnvironmentSettings(batch_size=4, group_size=2, renderer_name="human_ai")

MINE = """
from cookhouse import MessageStepResult, message_environments

class Echo:
    def __init__(self, word):
        self.word = word
    async def initial_observation(self):
        return [{"role": "user", "content": self.word}]
    async def step(self, message):
        return MessageStepResult(reward=float(message["content"] == self.word), episode_done=True)

def build(settings, open_sampler):
    return message_environments(settings, Echo, train=["a", "b", "c"], test=["d"], name="echo")
"""


async def nobody(name: str) -> Any:
    raise AssertionError(name)


def parse(env: str, weights: str = "", args: str = "{}", settings: EnvironmentSettings = SETTINGS) -> Any:
    return parse_environments(env, weights, args, settings, nobody)


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_every_built_in_name_stands_for_a_builder(name: str) -> None:
    assert callable(ENVIRONMENTS.find(name))


async def test_a_built_in_one_takes_what_the_run_has_settings_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "2 + 2", "answer": "4"}\n')
    config = EnvironmentSettings(batch_size=1, group_size=3, renderer_name="human_ai")
    train, _ = await parse("arithmetic", args=json.dumps({"dataset_path": str(path)}), settings=config).build()
    [group] = train.get_batch(0)
    envs = await group.make_envs()
    assert len(envs) == 3
    assert isinstance(envs[0], ArithmeticEnv)
    assert envs[0].problem.question == "2 + 2"


async def test_one_of_a_file_is_played(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    train, test = await parse(f"{tmp_path}/mine.py:build").build()
    assert len(train) == 1
    assert test is not None
    [group] = test.get_batch(0)
    [env] = await group.make_envs()
    prompt, _ = await env.initial_observation()
    assert prompt.length > 0
    assert group.logging_tags() == ["echo"]


async def test_mixed_by_weight_in_every_batch(tmp_path: Path) -> None:
    # Catches proportions that hold on average only, and metrics that cannot tell the environments apart.
    (tmp_path / "mine.py").write_text(MINE)
    train, test = await parse(f"arithmetic,{tmp_path}/mine.py:build", "3,1").build()
    for index in (0, 1, len(train), 2 * len(train) + 5):
        tags = Counter(group.logging_tags()[0] for group in train.get_batch(index))
        assert tags == {"arithmetic": 3, "build": 1}
    assert [group.logging_tags() for group in train.get_batch(7)] == [g.logging_tags() for g in train.get_batch(7)]
    assert test is not None
    assert {group.logging_tags()[0] for group in test.get_batch(0)} == {"arithmetic", "build"}


@pytest.mark.parametrize(
    ("env", "weights", "args", "message"),
    [
        ("", "", "{}", "env names no environment"),
        ("arithmetic", "1,2", "{}", "there must be one above 0 for each of arithmetic"),
        ("arithmetic,math", "1,0", "{}", "there must be one above 0"),
        ("arithmetic", "one", "{}", "it must be numbers separated by commas"),
        ("arithmetic", "", "[1]", "it must be a JSON object"),
        ("arithmetic", "", "{", "it must be a JSON object"),
        ("arithmetic,self_play", "", '{"target": 41}', "env_args is for one environment"),
        ("arithmetic,self_play", "9,1", "{}", "too small for one of each"),
        ("arithmatic", "", "{}", "unknown environment 'arithmatic'; did you mean arithmetic"),
        ("self_play", "", '{"taget": 41}', "unknown setting of SelfPlayConfig 'taget'; did you mean target"),
    ],
)
async def test_what_cannot_be_is_refused(env: str, weights: str, args: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        await parse(env, weights, args).build()


def test_what_is_no_environment_says_what_one_is() -> None:
    with pytest.raises(InputError, match="an environment is a function of the run's settings"):
        ENVIRONMENTS.find("os:sep")
    with pytest.raises(UnknownNameError, match="did you mean build"):
        ENVIRONMENTS.find("tests.envs.test_environments:buil")


def build(*_: Any) -> Any:
    """Something to be misspelled above."""


async def test_without_held_out_problems_nothing_is_evaluated() -> None:
    class Once:
        def __init__(self, problem: int) -> None:
            self.problem = problem

        async def initial_observation(self) -> Any:
            return [{"role": "user", "content": str(self.problem)}]

        async def step(self, message: Any) -> MessageStepResult:
            del message
            return MessageStepResult(reward=1.0, episode_done=True)

    _, test = await message_environments(SETTINGS, Once, train=[1, 2, 3, 4], test=None).build()
    assert test is None


async def test_one_that_raises_while_it_is_built_is_named_with_the_line(tmp_path: Path) -> None:
    """A bare message of an exception would leave its author to search for the file that it came from."""
    path = tmp_path / "broken.py"
    path.write_text("def build(settings, open_sampler):\n    raise KeyError('luck')\n")
    with pytest.raises(
        InputError, match=r"broken\.py:build cannot be built: KeyError: 'luck' \(.*broken\.py, line 2\)"
    ):
        await parse(f"{path}:build").build()
