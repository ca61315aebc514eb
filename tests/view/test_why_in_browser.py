"""Why did the reward drop at step 40, and which answers did it give there: found in three clicks."""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.view.rl_run import make_rl_run

CLICKS = "addEventListener('click', () => sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1, true)"


def test_a_drop_of_the_reward_leads_to_the_answers_of_its_step(runs: Path, show: Callable[..., Page]) -> None:
    make_rl_run(runs / "sums", num_steps=41)  # worse from step 40 on
    page = show("/")
    page.context.add_init_script(CLICKS)
    page.reload()
    page.get_by_role("link", name="sums").click()
    reward = page.locator('figure[data-metric="env/all/reward/total"]')
    expect(reward.locator(".caption")).to_contain_text("last 0.2 (step 41)")
    box = reward.locator("svg.live").bounding_box()
    assert box is not None
    # The axis, from step 1 to 41, begins 50 pixels from the left and ends 10 from the right.
    page.mouse.click(box["x"] + 50 + 39 / 40 * (box["width"] - 60), box["y"] + box["height"] / 2)
    page.wait_for_url("**/-/steps/40")
    expect(page.locator("#changed li").first).to_contain_text("env/all/reward/total 0.9 → 0.2")
    expect(page.locator("#sampled")).to_contain_text("What is 2 + 2?")
    expect(page.locator("#sampled")).to_contain_text("5")
    assert page.evaluate("Number(sessionStorage.clicks)") <= 3
