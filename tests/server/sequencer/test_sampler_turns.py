"""Which weights are sampled from, where only so many may be at a time."""

import random

from cookhouse.server.sequencer.sampler_turns import SamplerTurns


class Turns:
    def __init__(self, max_samplers: int | None) -> None:
        self.turns = SamplerTurns(max_samplers)
        self.begun: list[str] = []

    def ask(self, snapshot: str | None, request: str, owner: str = "a") -> None:
        self.turns.begin(owner, snapshot, request, lambda: self.begun.append(request))


def test_weights_in_use_let_those_that_wait_go_first() -> None:
    """Would catch a sampler that is asked all the time and keeps the others out for ever."""
    turns = Turns(1)
    turns.ask("s", "s1")
    turns.ask("s", "s2")
    turns.ask("t", "t1")
    turns.ask("s", "s3")
    assert turns.begun == ["s1", "s2"]
    turns.turns.end("a", "s", "s1")
    assert turns.begun == ["s1", "s2"]
    turns.turns.end("a", "s", "s2")
    assert turns.begun[2:] == ["t1"]
    assert turns.turns.is_waiting("a", "s", "s3")
    turns.turns.end("a", "t", "t1")
    assert turns.begun[3:] == ["s3"]


def test_tenants_and_base_models_do_not_count() -> None:
    turns = Turns(1)
    turns.ask("s", "s1")
    turns.ask("t", "t1", owner="b")
    turns.ask(None, "base")
    assert turns.begun == ["s1", "t1", "base"]
    turns.turns.end("a", None, "base")
    assert not turns.turns.is_waiting("a", None, "base")


def test_a_sample_that_is_canceled_while_it_waits_frees_nothing() -> None:
    """Would catch a turn counted as over that never began: one more would run than may."""
    turns = Turns(1)
    for name in ("s1", "t1", "u1"):
        turns.ask(name[0], name)
    turns.turns.end("a", "t", "t1")
    assert turns.begun == ["s1"]
    turns.turns.end("a", "s", "s1")
    assert turns.begun == ["s1", "u1"]


def test_all_begin_and_never_too_many_at_once() -> None:
    """Would catch a turn that is lost, in any order of asking and ending."""
    rng = random.Random(1)
    for limit in (1, 2, 3, None):
        turns, running, asked = Turns(limit), dict[str, str](), dict[str, str]()
        for index in range(400):
            if rng.random() < 0.5:
                name = f"r{index}"
                asked[name] = rng.choice("stuvw")
                turns.ask(asked[name], name)
            elif running:
                name = rng.choice(sorted(running))
                turns.turns.end("a", running.pop(name), name)
            running |= {name: asked[name] for name in turns.begun}
            turns.begun.clear()
            assert limit is None or len(set(running.values())) <= limit
        while running:
            name, snapshot = running.popitem()
            asked.pop(name)
            turns.turns.end("a", snapshot, name)
            running |= {name: asked[name] for name in turns.begun}
            turns.begun.clear()
        assert not any(turns.turns.is_waiting("a", snapshot, name) for name, snapshot in asked.items())
