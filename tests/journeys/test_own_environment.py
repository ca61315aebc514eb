"""A researcher with an environment of her own, who wants the reward to rise, and to know why it did."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page
from tests.browser import opened, wider_than_window
from tests.journeys.journey import Journey
from tests.journeys.terminal import CTRL_C

BETWEEN = '''\
"""Name a number between two others; part of the reward is for a number at all."""

from collections.abc import Sequence

from cookhouse import EnvironmentSettings, MessageStepResult, Metric, RLDatasetBuilder, declare_metric
from cookhouse import message_environments
from cookhouse.chat import Message, text_of
from cookhouse.envs import OpenSampler

IS_NUMBER = declare_metric(Metric("env/all/is_number", direction="more", is_share=True, label="numbers"))


def grade(answer: str, low: int, high: int) -> float:
    if not answer.isdecimal():
        return 0.0
    return 1.0 if low < int(answer) < high else 0.1


class Between:
    """One episode: one question, one answer."""

    def __init__(self, bounds: tuple[int, int]) -> None:
        self.low, self.high = bounds

    async def initial_observation(self) -> Sequence[Message]:
        return [{"role": "user", "content": f"Name a number between {self.low} and {self.high}."}]

    async def step(self, message: Message) -> MessageStepResult:
        answer = text_of(message).strip()
        reward = grade(answer, self.low, self.high)
        metrics = {"correct": float(reward == 1.0), "is_number": float(answer.isdecimal())}
        return MessageStepResult(reward=reward, episode_done=True, metrics=metrics)


BOUNDS = [(low, low + width) for low in range(10, 80) for width in range(5, 20, 3)]


def build(settings: EnvironmentSettings, open_sampler: OpenSampler) -> RLDatasetBuilder:
    return message_environments(settings, Between, train=BOUNDS[::2], test=BOUNDS[1::8])
'''
TEST = """\
from between import grade


def test_what_is_paid() -> None:
    assert [grade(answer, 10, 20) for answer in ("15", "25", "ten")] == [1.0, 0.1, 0.0]
"""


@pytest.mark.slow
def test_own_environment(begin: Callable[..., Journey], write_transcripts: bool, subtests: pytest.Subtests) -> None:
    journey = begin("own-environment", "An environment of one's own, and a reward that rises", "numbers")
    journey.heading("A file to begin from")
    journey.run("cookhouse new environment between")
    journey.remark(
        "The question, the grader and the problems are her own; so is one of the metrics, which she declares."
    )
    journey.write("between.py", BETWEEN)
    journey.write("test_between.py", TEST)
    journey.run("python -m pytest -q test_between.py")

    journey.heading("Before anything is trained")
    said = journey.run("cookhouse run rl env=between.py:build max_steps=8 --dry-run")
    assert "groups           16 per step, 44 held out" in said
    journey.remark("A slip of the pen ends a run with the line where it is.")
    slip = BETWEEN.replace("text_of(message).strip()", "text_of(message).stripped()")
    journey.write("slip.py", slip, shown="        # …\n        answer = text_of(message).stripped()\n")
    said = journey.run("cookhouse run rl env=slip.py:build log_path=runs/slip max_steps=1 num_eval=0", status=1)
    assert re.search(r"'str'\s+object\s+has\s+no\s+attribute\s+'stripped'\s+\(slip\.py,\s+line\s+29\)", said)

    journey.heading("The reward rises")
    said = journey.run("cookhouse run rl env=between.py:build log_path=runs/first max_steps=8 num_eval=16")
    before, after = figures(said, "training reward, first and last")
    assert after > before + 0.2
    rollouts, report = (journey.folder / "runs/first" / name for name in ("rollouts/000007.html", "report.html"))
    with subtests.test("the table of rollouts in a browser"), opened(rollouts) as page:
        check_table(page)
    with subtests.test("the report on a telephone"), opened(report, width=420) as page:
        assert wider_than_window(page) == 0
        assert page.get_by_text("env/all/is_number", exact=True).count()
    journey.remark(
        "`report.html` has the curves, hers among them. `rollouts/000007.html` has every attempt of the last step in a "
        "table, with its question, its answer and its reward: a press on a column sorts it, and fields above it filter."
    )

    journey.heading("Other settings, stopped and gone on with")
    journey.remark(
        "The settings of GRPO, the best weights kept, and a limit of time; she presses Ctrl-C at the third step."
    )
    grpo = "advantage=normalized reduction=mean loss_fn=ppo"
    terminal = journey.start(
        f"cookhouse run rl env=between.py:build log_path=runs/grpo max_steps=8 num_eval=16 {grpo} "
        "keep_best=auto eval_every=4 max_minutes=30"
    )
    terminal.wait_for(r"step 3/8", seconds=300)
    terminal.press(CTRL_C)
    said = journey.end(status=130)
    assert "interrupted and saved" in said
    said = journey.run("cookhouse runs resume grpo")
    assert re.search(r"done after 8 of 8 steps", said)
    assert re.search(r"^best +\S+: held-out reward", said, re.MULTILINE)
    said = journey.run("cookhouse runs compare first grpo")
    assert re.search(r"advantage +group_centered +normalized", said)

    journey.heading("One setting, swept")
    said = journey.run(
        "cookhouse sweep rl env=between.py:build learning_rate=1e-3,4e-3 max_steps=4 num_eval=16 log_path=runs/rates"
    )
    assert re.search(r"^best +\d-learning_rate=", said, re.MULTILINE)

    journey.heading("No more tokens than this")
    said = journey.run(
        "cookhouse run rl env=between.py:build log_path=runs/capped num_eval=0 max_tokens_total=20000", status=75
    )
    assert "max_tokens_total=20000 is reached" in said
    assert "max_tokens_total=40000" in said, "the command that goes on may use more"

    journey.heading("The best, by a name")
    journey.run("cookhouse runs")
    journey.run("cookhouse models register between grpo")
    journey.run("cookhouse models promote between@1 production")
    said = journey.run("cookhouse sample between@production 'Name a number between 20 and 30.'")
    assert said.splitlines()[-1].strip()

    journey.heading("One with a tool")
    said = journey.run("cookhouse new tools shop")
    assert "warm up" in said
    journey.run("python -m pytest -q test_shop.py")
    journey.remark(
        "The embedded model has never called a tool: a minute of conversations with calls comes first, then reward. "
        "[Tools](../how-to/own-environment.md#tools) has what comes of it."
    )
    said = journey.run("cookhouse run supervised dataset_path=shop.py:calls renderer_name=qwen3_instruct --dry-run")
    assert "<tool_call>" in said
    journey.check(write=write_transcripts)


def figures(said: str, label: str) -> tuple[float, float]:
    """The two of a line of the summary."""
    (line,) = [line for line in said.splitlines() if line.startswith(label)]
    before, after = line.removeprefix(label).split()
    return float(before), float(after)


def check_table(page: Page) -> None:
    """Sorted by reward the best stand first; with a filter of reward no other is left; text is found in questions."""
    rows = page.locator("#samples tbody tr")
    page.get_by_role("button", name="reward").click()
    rewards = [float(row) for row in rows.locator("td:nth-child(3)").all_inner_texts()]
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[0] == 1.0
    page.locator("#least").fill("0.5")
    shown = [float(row) for row in page.locator("#samples tbody tr:visible td:nth-child(3)").all_inner_texts()]
    assert shown == [reward for reward in rewards if reward >= 0.5]
    question = rows.first.locator("td:nth-child(7)").inner_text()
    asked = re.search(r"between \d+ and \d+", question)
    assert asked is not None
    page.locator("#text").fill(asked[0])
    left = page.locator("#samples tbody tr:visible td:nth-child(7)").all_inner_texts()
    assert left
    assert all(asked[0] in question for question in left)
