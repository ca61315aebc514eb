"""The page of rollouts shows what happened, and nothing in it can act."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
import tinker
from tests.pages.reader import Page

from cookhouse.errors import InputError
from cookhouse.report import rollouts_page
from cookhouse.rl import (
    RolloutFailure,
    TokensWithLogprobs,
    Trajectory,
    TrajectoryGroup,
    Transition,
)
from cookhouse.telemetry import Entry, Note, Scope, Table

HOSTILE = '</pre><script>alert("1")</script><img src=x onerror=alert(1)>&lt;\x1b[2J\u202e\ud800'


class Words:
    """Token i is word i."""

    words = ("What is 2+2? ", "Four.", "Sure? ", "Yes", HOSTILE)

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool) -> str:
        assert not clean_up_tokenization_spaces
        return "".join(self.words[i] for i in token_ids)


def turn(observation: list[int], action: list[int], logs: dict[str, str] | None = None) -> Transition:
    return Transition(
        observation=tinker.ModelInput.from_ints(observation),
        action=TokensWithLogprobs(tokens=action, maybe_logprobs=None),
        reward=0.25,
        episode_done=False,
        metrics={"format": 1.0},
        logs=logs or {},
    )


def group(transitions: list[Transition], failures: Sequence[RolloutFailure] = ()) -> TrajectoryGroup:
    trajectory = Trajectory(
        transitions=transitions, final_observation=tinker.ModelInput.empty(), stop_reason="max_turns"
    )
    return TrajectoryGroup(
        trajectories_G=[trajectory],
        group_rewards_G=[1.0],
        group_metrics_G=[{"won": 1.0}],
        tags=["sums"],
        version=7,
        failures=failures,
    )


def test_a_conversation_is_shown_once_with_its_figures() -> None:
    page = Page(
        rollouts_page(
            [group([turn([0], [1]), turn([0, 1, 2], [3, 3])])], Words(), title="t", advantages_P=[[[[0.5], [2.0, 1.0]]]]
        )
    )
    for words in Words.words[:3]:
        assert page.text.count(words) == 1
    figures = "reward 1.5, advantage 0.5, 1.5 (1 to 2), max_turns"
    for expected in ("Group 0, sums, weights after step 7", figures, "YesYes", "won", "format"):
        assert expected in page.text


def test_a_prompt_that_a_group_shares_is_shown_once() -> None:
    # Catches sixteen samples of one problem that show it sixteen times.
    one = group([turn([0], [1])])
    two = replace(one, trajectories_G=[*one.trajectories_G] * 2, group_rewards_G=[0.0] * 2, group_metrics_G=[{}] * 2)
    page = Page(rollouts_page([two], Words(), title="t"))
    assert (page.text.count("What is 2+2? "), page.text.count("Four.")) == (1, 4)  # twice in the table
    others = [one.trajectories_G[0], group([turn([2], [3])]).trajectories_G[0]]
    page = Page(rollouts_page([replace(two, trajectories_G=others)], Words(), title="t"))
    assert (page.text.count("What is 2+2? "), page.text.count("Sure? ")) == (1, 1)


def test_hostile_text_stays_text() -> None:
    hostile = group(
        [turn([4], [4], {HOSTILE: HOSTILE})],
        [RolloutFailure(member=0, attempt=0, origin="env", reason=HOSTILE)],
    )
    html = rollouts_page([hostile], Words(), title=HOSTILE)
    html.encode()  # half a surrogate pair could not be written to a file
    plain = Page(rollouts_page([group([turn([0], [1], {"a": "b"})], hostile.failures)], Words(), title="t"))
    page = Page(html)
    assert (page.tags, page.attributes) == (plain.tags, plain.attributes)
    assert page.text.count('<script>alert("1")</script>') == 7  # title twice, prompt, sample, log twice, failure
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_the_table_has_what_it_sorts_and_filters_by() -> None:
    # Catches a row that leads nowhere, and a reward that is cut for people before the filter reads it.
    one = group([turn([0], [1]), turn([0, 1, 2], [3, 3])])
    many = replace(
        one, trajectories_G=[*one.trajectories_G] * 2, group_rewards_G=[0.123456, 0.0], group_metrics_G=[{}] * 2
    )
    text = rollouts_page([one, many], Words(), title="t")
    page = Page(text)
    assert '<td class="more">What is 2+2?</td><td>YesYes</td>' in text, "the question stands beside the answer"
    assert page.values("data-reward") == ["1.5", "0.623456", "0.5"]
    links = [value.removeprefix("#") for value in page.values("href")]
    assert links == ["g0s0", "g1s0", "g1s1"]
    assert set(links) <= set(page.values("id"))


def test_the_only_script_is_the_page_s_own() -> None:
    # Catches a policy that lets foreign scripts run, or not even ours.
    html = rollouts_page([group([turn([4], [4])])], Words(), title=HOSTILE)
    [rest] = html.split('<script type="module">')[1:]
    script = rest.split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in Page(html).values(
        "content"
    )
    for danger in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "outerHTML", "http:"):
        assert danger not in script


def test_advantages_that_do_not_match_are_refused() -> None:
    with pytest.raises(InputError, match="one sequence for each trajectory"):
        rollouts_page([group([turn([0], [1])])], Words(), title="t", advantages_P=[])
    with pytest.raises(InputError, match="one sequence for each trajectory"):
        rollouts_page([group([turn([0], [1])])], Words(), title="t", advantages_P=[[]])
    assert ", advantage" not in rollouts_page([group([turn([0], [1])])], Words(), title="t", advantages_P=[None])


def test_what_an_environment_noted_is_in_its_turn() -> None:
    noted: list[Entry] = [
        Note(text=HOSTILE),
        Scope(
            title="grading " + HOSTILE,
            is_open=False,
            entries=[Table(columns=["criterion", HOSTILE], rows=[["brief", HOSTILE]]), Note(text="inner")],
        ),
    ]
    shared = replace(group([replace(turn([0], [1]), entries=noted)]), entries=[Note(text="of the group")])
    html = rollouts_page([shared], Words(), title="t")
    page = Page(html)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert page.text.count("alert(1)") == 4
    assert page.text.index("grading") < page.text.index("brief") < page.text.index("inner") < page.text.index("of the")
    assert html.count("<details open id=") == 1  # that of the sample: the scope is folded
    assert html.count("<details>") == 1
