import json
import random

import pytest

from cookhouse.server.sequencer.order import ModelOrder, SeenIds


def order() -> ModelOrder[str]:
    return ModelOrder(gap_seconds=1.0)


def ready(waiting: ModelOrder[str], now: float) -> list[str]:
    """What may run now, in order."""
    taken = []
    while (ready_at := waiting.ready_at()) is not None and ready_at <= now:
        taken.append(waiting.take().request)
    return taken


def test_requests_run_in_the_order_of_their_ids() -> None:
    """Would catch a sum, or a step, that depends on the order in which requests arrive."""
    names = {1: "pass", 2: "pass", 3: "step", 4: "save", 5: "pass", 6: "step"}
    for seed in range(20):
        waiting, taken = order(), []
        arriving = list(names)
        random.Random(seed).shuffle(arriving)
        for seq_id in arriving:
            waiting.put(f"{names[seq_id]} {seq_id}", seq_id, now=0.0)
            taken += ready(waiting, now=0.5)
        assert taken == [f"{name} {seq_id}" for seq_id, name in names.items()]


@pytest.mark.parametrize("kind", ["pass", "step"])
def test_a_gap_costs_a_bounded_wait(kind: str) -> None:
    """Would catch a step that overtakes its pass, a run wedged by an id that never comes, and one that waits again."""
    waiting = order()
    waiting.put("pass 1", 1, now=0.0)
    assert ready(waiting, now=0.0) == ["pass 1"]
    waiting.put(f"{kind} 3", 3, now=10.0)
    assert waiting.ready_at() == 11.0
    assert ready(waiting, now=10.9) == []
    assert ready(waiting, now=11.0) == [f"{kind} 3"]
    waiting.put("pass 4", 4, now=11.0)
    assert ready(waiting, now=11.0) == ["pass 4"]


def test_one_that_is_late_runs_when_it_comes() -> None:
    """Would catch a late request that is lost, or that holds up those after it."""
    waiting = order()
    waiting.put("step 2", 2, now=0.0)
    assert ready(waiting, now=1.0) == ["step 2"]
    waiting.put("pass 1", 1, now=2.0)
    waiting.put("pass 3", 3, now=2.0)
    assert ready(waiting, now=2.0) == ["pass 1", "pass 3"]


def test_what_has_no_id_goes_first() -> None:
    """Would catch a pass that runs before its model is made."""
    waiting = order()
    waiting.put("pass 1", 1, now=0.0)
    waiting.put("create", None, now=0.0)
    assert ready(waiting, now=0.0) == ["create", "pass 1"]


def test_draining_gives_all_in_order() -> None:
    waiting = order()
    for seq_id in (5, 3, 4):
        waiting.put(f"pass {seq_id}", seq_id, now=0.0)
    assert waiting.drain() == ["pass 3", "pass 4", "pass 5"]
    assert waiting.ready_at() is None


def test_what_ran_runs_again_as_it_ran() -> None:
    """Would catch a replay in the order of ids, and one that lets new requests overtake it."""
    waiting = order()
    waiting.put("step 4", 4, now=0.0)
    for name, seq_id in (("pass 1", 1), ("step 3", 3), ("pass 2", 2)):
        waiting.put_again(name, seq_id)
    assert ready(waiting, now=0.0) == ["pass 1", "step 3", "pass 2", "step 4"]


def test_what_came_late_and_has_not_run_does_not_go_before_what_may_have_run() -> None:
    """Would catch a restart that runs 2, which came when nobody waited for it, before 4 and 5, which had run."""
    waiting = order()
    waiting.put_again("ran 3", 3)
    waiting.put_late("late 2", 2, before=6, now=0.0)
    waiting.put_late("without an id", None, before=6, now=0.0)
    waiting.put("ran 4", 4, now=0.0)
    waiting.put("ran 5", 5, now=0.0)
    assert ready(waiting, now=0.0) == ["ran 3", "ran 4", "ran 5", "late 2", "without an id"]


def test_what_comes_after_a_restart_without_an_id_runs_behind_what_waits_without_one() -> None:
    """Would catch a pass that runs before the step which its client sent first, and whose server was killed."""
    waiting = order()
    waiting.put_again("pass", None)
    waiting.put_late("step", None, before=1, now=0.0)
    waiting.put("next pass", None, now=0.0)
    assert ready(waiting, now=0.0) == ["pass", "step", "next pass"]


def test_ids_alone_say_the_order_or_it_is_written_down() -> None:
    """Would catch a replay that takes a gap for one that never came, and lets a late request run in its place."""
    waiting = order()
    in_order = {}
    for seq_id, now in ((1, 0.0), (3, 0.0), (4, 0.0), (2, 9.0), (5, 9.0), (None, 9.0), (6, 9.0)):
        waiting.put(str(seq_id), seq_id, now)
        if seq_id != 3:
            while (ready_at := waiting.ready_at()) is not None and ready_at <= now + 1.0:
                taken = waiting.take()
                in_order[taken.request] = taken.is_in_order
    assert in_order == {"1": True, "3": False, "4": True, "2": False, "5": True, "None": False, "6": True}


def test_seen_ids_are_those_that_came() -> None:
    """Would catch an id that runs twice, one that is dropped as a copy, and a state that forgets them."""
    chance = random.Random(3)
    for _ in range(50):
        seen, expected = SeenIds(), set()
        for _ in range(60):
            seq_id = chance.choice([chance.randint(1, 30), 10**15])
            seen.add(seq_id)
            expected.add(seq_id)
            if chance.random() < 0.1:
                seen.take(seq_id)
            if chance.random() < 0.1:
                seen = SeenIds.of_json(json.loads(json.dumps(seen.to_json())))
        assert {seq_id for seq_id in (*range(40), 10**15) if seq_id in seen} == expected
        assert seen.next_id not in seen


def test_ids_take_no_more_than_their_gaps() -> None:
    seen = SeenIds()
    for seq_id in range(1, 10_001):
        seen.add(seq_id)
    seen.take(10**18)
    assert len(json.dumps(seen.to_json())) < 100
