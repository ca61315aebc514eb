"""The engine of the page: when it starts, who shares it, and when it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.view.playground.conftest import FakeEngine
from tests.waiting import wait_until

from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError, ServiceError
from cookhouse.service.sampling.chat_model import SamplingOptions
from cookhouse.service.sampling.target import Target
from cookhouse.view.place import Place
from cookhouse.view.playground.playground import Playground
from cookhouse.view.playground.question import Question
from cookhouse.view.playground.shared_service import SharedService

DRAW = SamplingOptions(max_tokens=8, temperature=0.0, top_p=1.0, seed=0)
TARGET = Target(model_name=TINY_MODEL, sampler_path=None, renderer_name="qwen3_instruct", state_dir=None)
QUESTION = Question(weights=("first",), prompt="Why?")


@dataclass(kw_only=True)
class Told:
    texts: list[str] = field(default_factory=list)

    def __call__(self, text: str) -> None:
        self.texts.append(text)


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition)


def test_one_engine_serves_all_and_ends_when_nobody_asks() -> None:
    """Catches an engine for each question, and one that stays for ever."""

    async def check() -> None:
        fake, told = FakeEngine(), Told()
        shared = SharedService(fake.open, idle_seconds=0.01)
        async with shared.models([TARGET], DRAW, told), shared.models([TARGET], DRAW, told) as models:
            assert models[0].draw == DRAW
            await asyncio.sleep(0.05)
            assert fake.num_running == 1  # in use, however long that takes
        await until(lambda: fake.num_running == 0)
        assert not shared.is_running
        async with shared.models([TARGET], DRAW, told):
            assert (fake.num_started, fake.num_running) == (2, 1)
        await shared.close()
        assert fake.num_running == 0
        assert told.texts == ["starting what answers, which takes some seconds", "starting the fake engine"] * 2

    asyncio.run(check())


def test_one_that_lacks_what_is_asked_for_is_left_to_those_whom_it_answers() -> None:
    """Catches an answer that is torn off since somebody else asks another base model."""

    async def check() -> None:
        fake, told = FakeEngine(), Told()
        shared = SharedService(fake.open)
        async with shared.models([TARGET], DRAW, told):
            fake.has_all = False
            other = asyncio.create_task(hold(shared, told))
            await until(lambda: "waiting until other answers are given: the engine is then started anew" in told.texts)
            third = asyncio.create_task(hold(shared, told))
            await until(lambda: any("loads weights for another question" in text for text in told.texts))
            assert not other.done()
        await asyncio.gather(other, third)
        await shared.close()

    async def hold(shared: SharedService, told: Told) -> None:
        async with shared.models([TARGET], DRAW, told):
            pass

    asyncio.run(check())


@pytest.mark.parametrize(("error", "num_started"), [(ServiceError("gone"), 2), (InputError("none"), 1)])
def test_one_that_cannot_open_anything_is_replaced(error: Exception, num_started: int) -> None:
    """Catches an engine that has died and is asked for ever, and one that a wrong name throws away."""

    async def check() -> None:
        fake, told = FakeEngine(), Told()
        opened = fake.chat_models
        shared = SharedService(fake.open)

        async def refuse(*_: object) -> None:
            raise error

        fake.chat_models = refuse  # type: ignore[assignment,method-assign]
        with pytest.raises(type(error)):
            await enter(shared, told)
        fake.chat_models = opened  # type: ignore[method-assign]
        await enter(shared, told)
        assert fake.num_started == num_started
        await shared.close()

    async def enter(shared: SharedService, told: Told) -> None:
        async with shared.models([TARGET], DRAW, told):
            pass

    asyncio.run(check())


def with_playground(runs: Path, check: Callable[[Playground, FakeEngine], Awaitable[None]]) -> None:
    async def run() -> None:
        fake = FakeEngine(waits=asyncio.Event())
        playground = Playground(Place(runs), open_service=fake.open)
        await check(playground, fake)
        await playground.close()
        assert fake.num_running == 0

    asyncio.run(run())


def test_who_stops_listening_stops_the_work(runs: Path) -> None:
    """Catches an answer that goes on for thousands of tokens which nobody reads."""

    async def check(playground: Playground, fake: FakeEngine) -> None:
        listening = playground.events(QUESTION, [TARGET])
        async for event in listening:
            if event["type"] == "prompt":
                break
        await until(lambda: fake.num_requests == 1)
        await listening.aclose()
        await until(lambda: fake.num_cancelled == 1)

    with_playground(runs, check)


def test_questions_wait_for_their_turn_and_too_many_are_refused(runs: Path) -> None:
    async def check(playground: Playground, fake: FakeEngine) -> None:
        async def listen() -> list[str]:
            return [event["type"] async for event in playground.events(QUESTION, [TARGET])]

        listening = [asyncio.create_task(listen()) for _ in range(10)]
        await until(lambda: fake.num_requests == 2)
        await asyncio.sleep(0.05)
        assert fake.num_requests == 2
        with pytest.raises(InputError, match="10 questions are being answered or wait"):
            playground.check_room()
        assert fake.waits is not None
        fake.waits.set()
        events = await asyncio.gather(*listening)
        assert all(kinds[-2:] == ["end", "done"] for kinds in events)
        assert sum(kinds[0] == "note" for kinds in events) >= 8
        playground.check_room()

    with_playground(runs, check)


def test_the_end_of_the_page_ends_answers_and_engine(runs: Path) -> None:
    """Catches a server that cannot stop while it answers, and an engine that outlives it."""

    async def check(playground: Playground, fake: FakeEngine) -> None:
        listening = asyncio.create_task(anext(playground.events(QUESTION, [TARGET])))
        await until(lambda: fake.num_requests == 1)
        await listening

    with_playground(runs, check)
