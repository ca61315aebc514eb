"""Clients that ask a simulated server for anything, in any order, and hold it to what it promised them."""

import asyncio
import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from pydantic import BaseModel
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import AdamStep, ForwardBackward, LoraSpec, SampleOutput, SampleRequest, TrainingDatum
from cookhouse.engine.simulated import State, created, fraction, passed, sampled
from cookhouse.server.refusals import BusyError, GoneError, NotFoundError, StorageBusyError
from cookhouse.server.requests.intake import Arrived
from cookhouse.server.sequencer.futures import JSON, Result
from cookhouse.server.service import Service
from cookhouse.server.wire import SampleShape, encode_sample
from tests.simulation.faults import BUG, REFUSAL
from tests.simulation.history import LOADED, Asked, BrokenPromiseError, History, Loaded, Work
from tests.simulation.processes import KilledError
from tests.simulation.server import BASE, Request, SimulatedServer

_T = TypeVar("_T")
Ids = tuple[str, str]
"""Of a request, and of its model."""
_LONGEST_SECONDS = 3600
"""No answer may take longer than that."""
_GONE = Result(body=b"{}", is_failure=True, status=410)
"""There is no answer any more."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How often a client does what it had better not, or what is unusual."""

    duplicates: float = 0.05
    gaps: float = 0.01
    """An id that never comes."""
    late: float = 0.03
    """Requests that come long after their successors."""
    forward_only: float = 0.1
    cancels: float = 0.03
    foreign: float = 0.02
    """Asks for what is another tenant's."""
    saves: float = 0.003
    loads: float = 0.0
    """Loads a checkpoint into a model that it trains."""
    deletes: float = 0.0
    """Deletes a checkpoint that it has loaded."""
    cuts: float = 0.0
    """Does not wait for an answer, and asks again."""
    silences: float = 0.02
    """Is not heard of until its session has ended."""
    leaves_early: float = 0.03
    """Ends its session while requests are under way."""


@dataclass
class Ledger:
    """What all clients share: how much they still do, what they were told, and names that others may try."""

    num_left: int
    counts: Counter[str] = field(default_factory=Counter)
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    names: list[tuple[str, str, str]] = field(default_factory=list)
    """Of models, samplers and requests: kind, owner, id."""

    def note(self, *what: object) -> None:
        """Make something part of the digest, which is the same for the same seed."""
        self.digest.update(repr((asyncio.get_running_loop().time(), *what)).encode())


class SessionOverError(Exception):
    """The client's session has ended, by its own doing."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A checkpoint, and what is in it."""

    path: str
    rank: int
    state: State


class Client:
    """One tenant's process."""

    def __init__(self, name: str, server: SimulatedServer, ledger: Ledger, seed: int, habits: Habits) -> None:
        self.owner = server.service.keys.owner_of(name)
        self._settings = server.settings
        self._server = server
        self._ledger = ledger
        self._habits = habits
        self._chance = random.Random(f"{name} of {seed}")
        self._session_id = ""
        self._num_models = self._num_samplers = 0
        self._is_over = False
        """Whether its session may have ended."""
        self._saved: list[Kept] = []
        self._has_deleted = False
        """Whether it has deleted a checkpoint."""
        self._requests: list[str] = []

    async def live(self) -> None:
        """Use one session after another until enough has been done."""
        await asyncio.sleep(self._chance.random())
        while self._ledger.num_left > 0:
            await self._use_session()

    async def _use_session(self) -> None:
        key = f"{self._chance.random()}"
        for _ in range(self._chance.choice([1, 1, 2])):

            async def begin(service: Service) -> str:
                session = await service.lifecycle.begin(
                    self.owner,
                    idempotency_key=key,
                    display_name=None,
                    user_metadata=None,
                    project_id=None,
                    sdk_version=None,
                )
                return session.session_id

            session_id = await self.ask(begin)
            self.check(self._session_id != session_id or _ > 0, "a session is that of another key")
            self._session_id = session_id
        self._num_models = self._num_samplers = 0
        self._is_over = False
        beating = asyncio.create_task(self._beat())
        try:
            for _ in range(self._chance.randint(1, 4)):
                await self._train()
        except SessionOverError:
            self.count("sessions that ended early")
        finally:
            beating.cancel()
            await asyncio.wait([beating])
        await self._finish_session("success")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(10.0)
            if not self._is_over:
                await self.ask(self._is_alive)

    async def _is_alive(self, service: Service) -> None:
        service.sessions.session(self._session_id, self.owner)

    async def _finish_session(self, reason: str) -> None:
        session_id = self._session_id

        async def finish(service: Service) -> None:
            await service.lifecycle.finish(session_id, self.owner, reason=reason, detail=None)

        await self.ask(finish)
        if self._chance.random() < self._habits.duplicates:
            self.check(await self._has_ended(), "a session goes on that its client has ended")

    async def _has_ended(self) -> bool:
        try:
            await self.ask(self._is_alive)
        except GoneError:
            return True
        return False

    async def _train(self) -> None:
        """Make a model, train it for some rounds, and check what came of it."""
        run = await self._make_model()
        if run is None:
            return
        sampling = await self._new_sampler()
        for _ in range(self._chance.randint(1, 12)):
            if self._ledger.num_left <= 0:
                break
            await self._misbehave()
            await run.round()
            if run.is_lost:
                break
            if self._chance.random() < 0.2:
                await sampling.ask()
            if self._chance.random() < self._habits.silences:
                await self._be_silent()
        await run.settle()

    async def _new_sampler(self) -> "Sampling":
        """A sampler of a checkpoint, or of the base model."""
        kept = self._chance.choice([Kept(path="", rank=0, state=State(BASE)), *self._saved])
        request = types.CreateSamplingSessionRequest(
            session_id=self._session_id,
            sampling_session_seq_id=self.new_sampler(),
            base_model=BASE,
            model_path=kept.path or None,
        )

        async def create(service: Service) -> str:
            return (await service.requests.sampling.create_sampler(self.owner, request)).sampler_id

        return Sampling(self, await self.ask(create), is_published=False, expected=kept.state.weights)

    async def _make_model(self) -> "Run | None":
        self._num_models += 1
        kept = self._chance.choice(self._saved) if self._saved and self._chance.random() < 0.5 else None
        if kept is not None:
            rank, state = kept.rank, kept.state
            loading = types.LoadWeightsRequest(
                path=kept.path, optimizer=True, session_id=self._session_id, model_seq_id=self._num_models
            )
            request_id, model_id = await self.send(self.accepting("load_weights", loading))
            self.count("loads")
        else:
            lora = LoraSpec(rank=self._chance.choice([1, 8]), seed=self._chance.getrandbits(31))
            rank, state = lora.rank, created(BASE, lora)
            creation = types.CreateModelRequest(
                session_id=self._session_id,
                model_seq_id=self._num_models,
                base_model=BASE,
                lora_config=types.LoraConfig(rank=lora.rank, seed=lora.seed),
            )
            request_id, model_id = await self.send(self.accepting("create_model", creation))
            self.count("models")
        if (await self.result(request_id)).is_failure:
            return None
        if kept is not None:
            await self._maybe_delete(kept)
        self._ledger.names.append(("model", self.owner, model_id))
        return Run(self, model_id, rank, History(state, self._settings.gap_seconds))

    async def _maybe_delete(self, kept: Kept) -> None:
        if self._chance.random() >= self._habits.deletes:
            return
        self._saved = [one for one in self._saved if one != kept]
        self._has_deleted = True
        self.count("checkpoints deleted")

        async def delete(service: Service) -> None:
            row = service.storage.checkpoints.resolve_own(kept.path, self.owner)
            await asyncio.to_thread(service.storage.checkpoints.delete, row)

        with suppress(NotFoundError):  # the answer to the first time was lost
            await self.ask(delete)

    async def _be_silent(self) -> None:
        self._is_over = True
        self.count("silences")
        began_at = asyncio.get_running_loop().time()
        while True:  # what a session has been silent for is not known to the next server
            silent_from = max(began_at, self._server.up_at)
            left = silent_from + 2 * self._settings.session_seconds - asyncio.get_running_loop().time()
            if left > 0:
                await asyncio.sleep(left)
            elif await self._has_ended():
                raise SessionOverError
            else:  # another server may have answered
                is_another = self._server.up_at > silent_from
                self.check(is_another, "a session that was silent for twice as long as it may is alive")

    async def _misbehave(self) -> None:
        """Ask for what is another tenant's."""
        names = self._ledger.names
        if not names or self._chance.random() >= self._habits.foreign:
            return
        kind, owner, name = self._chance.choice(names)
        if owner == self.owner:
            return
        self.count("foreign requests")

        async def look_up(service: Service) -> object:
            look_ups: dict[str, Callable[[str, str], object]] = {
                "model": service.sessions.model,
                "sampler": service.sessions.sampler,
                "request": service.sequencer.futures.get,
            }
            return look_ups[kind](name, self.owner)

        try:
            await self.ask(look_up)
        except (NotFoundError, GoneError):
            return
        raise BrokenPromiseError(f"{self.owner} was given the {kind} {name} of {owner}")

    async def end_session(self) -> None:
        """Leave while requests are under way."""
        self._is_over = True
        await self._finish_session("interrupted")

    # What runs use of their client.

    @property
    def chance(self) -> random.Random:
        return self._chance

    @property
    def habits(self) -> Habits:
        return self._habits

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def has_journal(self) -> bool:
        return self._server.has_journal

    def new_sampler(self) -> int:
        self._num_samplers += 1
        return self._num_samplers

    def keep(self, kept: Kept) -> None:
        self._saved = [*self._saved[-3:], kept]

    def saved(self, rank: int) -> Kept | None:
        """One of its checkpoints of this rank."""
        fitting = [kept for kept in self._saved if kept.rank == rank]
        return self._chance.choice(fitting) if fitting else None

    def name(self, kind: str, name: str) -> None:
        """Let others try a name of this tenant's."""
        names = self._ledger.names
        if len(names) > 1000:
            del names[:500]
        names.append((kind, self.owner, name))

    def count(self, what: str, number: int = 1) -> None:
        self._ledger.counts[what] += number

    def check(self, is_kept: bool, promise: str) -> None:
        if not is_kept:
            raise BrokenPromiseError(f"{self.owner}: {promise}")

    async def ask(self, request: Request[_T]) -> _T:
        """What the server answers, however often it has to be asked."""
        began_at = time.monotonic()
        while True:
            is_cut = self._habits.cuts > 0 and self._chance.random() < self._habits.cuts
            try:
                return await self._server.ask(request, 0.02 * self._chance.random() if is_cut else None)
            except KilledError:
                self.count("answers lost in a crash")
            except TimeoutError:
                self.count("answers lost on the way")
            except StorageBusyError:
                self.check(self.has_journal, "the database is busy")
                self.count("storage busy")
                await asyncio.sleep(1.0)
            self.check(time.monotonic() - began_at < _LONGEST_SECONDS, "a request is never answered")

    def accepting(self, kind: str, content: BaseModel) -> Request[Ids]:
        """A request that changes a model, to be sent."""
        arrived = Arrived(kind=kind, body=content.model_dump_json(exclude_none=True).encode())

        async def submit(service: Service) -> Ids:
            return await service.requests.intake.accept(self.owner, content, arrived)

        return submit

    async def send(self, submit: Request[Ids]) -> Ids:
        """Submit a request until it is accepted, now and then twice; gives its ids."""
        self._ledger.num_left -= 1
        self.count("requests")
        while True:
            try:
                ids = await self.ask(submit)
                break
            except BusyError:
                self.count("busy")
                await asyncio.sleep(1.0)
        if self._chance.random() < self._habits.duplicates:
            self.count("duplicates")
            up_at = self._server.up_at
            again = await self.ask(submit)
            is_drawn_again = ids[0].startswith("sample-") and up_at != self._server.up_at
            self.check(again == ids or is_drawn_again, f"a duplicate of {ids} was accepted as {again}")
        return ids

    async def result(self, request_id: str) -> Result:
        """The answer, which there must be one of, the same however often it is asked for."""
        began_at = time.monotonic()
        result = None
        while result is None:
            result = await self._ask_for(request_id)
            self.check(time.monotonic() - began_at < _LONGEST_SECONDS, f"{request_id} has no answer")
        if self._chance.random() < self._habits.duplicates:
            again = await self._ask_for(request_id)
            is_over = again is _GONE
            self.check(again == result or is_over, f"{request_id} has two answers: {result} {again}")
        self.check(not self._server.answered_twice, f"a request was answered twice: {self._server.answered_twice}")
        if result.is_failure and result is not _GONE:
            self._check_failure(result, is_sample=request_id.startswith("sample-"))
        self._ledger.note(request_id, result.body, result.status)
        return result

    async def _ask_for(self, request_id: str) -> Result | None:
        """None: it is not there yet. `_GONE`: it was a sample, or the session has ended."""

        async def retrieve(service: Service) -> Result | None:
            future = service.sequencer.futures.get(request_id, self.owner)
            if not self._is_over:
                service.sessions.hear(future.session_id)
            return await service.sequencer.futures.wait(future, self._settings.long_poll_seconds)

        try:
            return await self.ask(retrieve)
        except NotFoundError as error:
            self.check(self.has_journal and self._is_over, str(error))
            self.count("answers that went with their session")
        except GoneError as error:
            self.check(self.has_journal, str(error))
            self.count("samples lost in a crash")
        return _GONE

    def _check_failure(self, result: Result, *, is_sample: bool) -> None:
        """Only what went wrong may fail a request, and the one who is to blame is named."""
        content = json.loads(result.body)
        rates = self._server.faults.rates
        can_lose = rates.lost > 0 and (is_sample or not self.has_journal)
        reasons = {
            (REFUSAL, "user"): rates.refused > 0,
            (BUG, "server"): rates.failed > 0,
            ("weights of this sampling client", "server"): self._server.drops_samplers or not self.has_journal,
            ("with it (an injected loss)", "server"): not self.has_journal,
            ("the engine was lost: an injected loss", "server"): can_lose,
            ("has left)", "server"): not self.has_journal,
            ("no checkpoint at", "user"): is_sample and self._has_deleted,
            ("has been deleted", "user"): is_sample and self._has_deleted,
            ("has ended", "user"): self._is_over,
            ("sample again", "user"): self._is_over,
            ("was canceled", "user"): self._habits.cancels > 0,
        }
        for (words, category), is_possible in reasons.items():
            if words in content["error"] and category == content["category"] and is_possible:
                self.count(f"answers: {words}")
                return
        raise BrokenPromiseError(f"{self.owner}: a request failed without a reason: {content}")


@dataclass
class Run:
    """One model of a client's."""

    client: Client
    model_id: str
    rank: int
    history: History
    num_seq_ids: int = 0
    is_lost: bool = False
    """Whether the worker that held it is gone."""
    waiting: list[tuple[Asked, str]] = field(default_factory=list)
    samplers: list["Sampling"] = field(default_factory=list)
    saves: list[tuple[int, str]] = field(default_factory=list)
    scores: list[Asked] = field(default_factory=list)

    async def round(self) -> None:
        """Some passes, a step, and maybe a publication, sent in any order; then their answers."""
        chance, habits = self.client.chance, self.client.habits
        plan: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        kinds = ["pass"] * chance.randint(1, 3) + ["step"]
        if chance.random() < 0.3:
            kinds.append("publish")
        if chance.random() < habits.saves:
            kinds.append("save")
        if chance.random() < habits.loads:
            kinds.append("load")
        for kind in kinds:
            self.num_seq_ids += 1
            if chance.random() < habits.gaps:
                continue
            delay = 5.0 * chance.random() if chance.random() < habits.late else 0.2 * chance.random()
            plan.append((delay, self._sending(kind, self.num_seq_ids)))
        now = 0.0
        for delay, send in sorted(plan, key=lambda one: one[0]):
            await asyncio.sleep(delay - now)
            now = delay
            await send()
        if chance.random() < habits.leaves_early:
            await self.client.end_session()
        await self._take_answers()
        if self.client.is_over:
            raise SessionOverError
        for sampling in self.samplers[-2:]:
            await sampling.ask()

    async def settle(self) -> None:
        """Explain all answers of the model."""
        if not (self.is_lost or self.client.is_over):
            self.num_seq_ids += 1
            await self._send_pass(self.num_seq_ids, is_scored=True)()
            await self._take_answers()
        history = self.history
        states = history.explain()
        possible = {state.weights for state in (history.begin, *states.values())}
        for sampling in self.samplers:
            published = history.state_at(sampling.seq_id, states)
            sampling.check(None if published is None else published.weights, possible)
        for seq_id, path in self.saves:
            state = history.state_at(seq_id, states)
            if state is not None:
                self.client.keep(Kept(path=path, rank=self.rank, state=replace(state, gradient="")))
        for scored in self.scores:
            state = history.state_at(scored.seq_id, states)
            assert isinstance(scored.score, ForwardBackward)
            if state is not None and scored.number is not None:
                is_right = fraction(passed(state, scored.score)) == scored.number
                self.client.check(is_right, f"{self.model_id} is not what its requests have made of it")
                self.client.count("scores checked")
        self.client.count("explained", len(states))

    def _sending(self, kind: str, seq_id: int) -> Callable[[], Awaitable[None]]:
        if kind == "pass":
            return self._send_pass(seq_id, is_scored=self.client.chance.random() < self.client.habits.forward_only)
        sending = {"step": self._send_step, "publish": self._publish, "save": self._save, "load": self._load}
        return sending[kind](seq_id)

    def _send_pass(self, seq_id: int, *, is_scored: bool) -> Callable[[], Awaitable[None]]:
        chance = self.client.chance
        tokens_T = np.arange(chance.randint(2, 6), dtype=np.int64) + chance.randrange(1000)
        targets_T = tokens_T + 1
        request = ForwardBackward(
            model_id=self.model_id,
            data_D=[TrainingDatum(tokens_T=tokens_T, loss_fn_inputs={"target_tokens": targets_T})],
            loss_fn="cross_entropy",
            forward_only=is_scored,
        )
        message = pb.ForwardBackwardRequest(
            model_id=self.model_id, seq_id=seq_id, loss_fn="cross_entropy", forward_only=is_scored
        )
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = tokens_T.astype("<i4").tobytes()
        datum.loss_fn_inputs["target_tokens"].CopyFrom(pb.Tensor(dtype=pb.DTYPE_INT64, dense=targets_T.tobytes()))
        body = message.SerializeToString()

        async def submit(service: Service) -> Ids:
            content = await service.requests.training.read_pass(self.client.owner, body)
            arrived = Arrived(kind="forward_backward", body=body)
            return await service.requests.intake.accept(self.client.owner, content, arrived)

        if is_scored:
            return self._sender(seq_id, None, submit, score=request)
        return self._sender(seq_id, request, submit)

    def _send_step(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        adam = AdamStep(learning_rate=self.client.chance.random(), beta1=0.9, beta2=0.95, eps=1e-12)
        request = types.OptimStepRequest(
            model_id=self.model_id, seq_id=seq_id, optim_params=types.AdamParams(learning_rate=adam.learning_rate)
        )
        return self._sender(seq_id, adam, self.client.accepting("optim_step", request))

    def _publish(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        async def submit(service: Service) -> Ids:
            # As the SDK, which gives every copy of such a request a new number for the sampler.
            request = types.SaveWeightsForSamplerRequest(
                model_id=self.model_id, seq_id=seq_id, sampling_session_seq_id=self.client.new_sampler()
            )
            return await self.client.accepting("save_weights_for_sampler", request)(service)

        return self._sender(seq_id, None, submit)

    def _save(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        request = types.SaveWeightsRequest(model_id=self.model_id, seq_id=seq_id, path=f"s{seq_id}")
        return self._sender(seq_id, None, self.client.accepting("save_weights", request))

    def _load(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        kept = self.client.saved(self.rank)
        if kept is None:
            return self._send_pass(seq_id, is_scored=False)
        request = types.LoadWeightsRequest(path=kept.path, optimizer=True, model_id=self.model_id, seq_id=seq_id)
        return self._sender(seq_id, Loaded(kept.state), self.client.accepting("load_weights", request))

    def _sender(
        self, seq_id: int, work: Work | None, submit: Request[Ids], score: ForwardBackward | None = None
    ) -> Callable[[], Awaitable[None]]:
        async def send() -> None:
            sent_at = time.monotonic()
            request_id, _ = await self.client.send(submit)
            asked = Asked(seq_id=seq_id, work=work, score=score, sent_at=sent_at, arrived_at=time.monotonic())
            self.history.asked.append(asked)
            self.waiting.append((asked, request_id))
            if self.client.chance.random() < 0.01:
                self.client.name("request", request_id)

        return send

    async def _take_answers(self) -> None:
        waiting, self.waiting = self.waiting, []
        for asked, request_id in waiting:
            result = await self.client.result(request_id)
            if result.is_failure:
                self.is_lost |= b"the engine was lost" in result.body
            elif result.media_type != JSON:
                number = pb.ForwardBackwardOutput.FromString(result.body).metrics["loss:sum"]
                asked.number = number
                if asked.score is not None:
                    self.scores.append(asked)
            else:
                self._take(asked, json.loads(result.body))

    def _take(self, asked: Asked, content: dict[str, object]) -> None:
        match content["type"]:
            case "optim_step":
                metrics = content["metrics"]
                assert isinstance(metrics, dict)
                asked.number = metrics["grad_norm"]
            case "save_weights_for_sampler":
                name = str(content["sampling_session_id"])
                self.client.name("sampler", name)
                self.samplers.append(Sampling(self.client, name, asked.seq_id))
            case "save_weights":
                self.saves.append((asked.seq_id, str(content["path"])))
            case "load_weights":
                asked.number = LOADED


@dataclass
class Sampling:
    """One sampler of a client's."""

    client: Client
    sampler_id: str
    seq_id: int = 0
    """Of the publication."""
    is_published: bool = True
    """Else its weights are in files, or a base model's, and outlive every worker."""
    expected: str | None = None
    """Its weights, where they are known from the beginning."""
    num_seq_ids: int = 0
    drawn: list[tuple[SampleRequest, bytes]] = field(default_factory=list)

    async def ask(self) -> None:
        """Some samples at once, some of which are canceled."""
        client, chance = self.client, self.client.chance
        under_way = []
        for _ in range(chance.randint(1, 8)):
            self.num_seq_ids += 1
            request = types.SampleRequest(
                prompt=types.ModelInput.from_ints([chance.randrange(1000) for _ in range(3)]),
                num_samples=chance.choice([1, 1, 2]),
                sampling_params=types.SamplingParams(max_tokens=chance.randint(1, 12), seed=chance.getrandbits(32)),
                sampling_session_id=self.sampler_id,
                seq_id=self.num_seq_ids,
            )
            request_id = await self._send(request)
            under_way.append((request_id, request))
            if chance.random() < client.habits.cancels:
                await asyncio.sleep(0.02 * chance.random())
                await client.ask(self._canceling(request_id))
        for request_id, request in under_way:
            result = await client.result(request_id)
            while result is _GONE and not client.is_over:
                result = await client.result(await self._send(self._again(request)))
            if result.is_failure:  # also one that went with its session
                is_lost = b"injected loss" in result.body
                is_given_up = is_lost and not self.is_published and not client.has_journal
                client.check(not is_given_up, "a sample that can be drawn again was given up")
            elif self.expected is None:
                self.drawn.append((self._decoded(request), result.body))
            else:
                is_right = _body(self._decoded(request), self.expected) == result.body
                client.check(is_right, f"a sample of {self.sampler_id} is not of its weights")

    async def _send(self, request: types.SampleRequest) -> str:
        client = self.client

        async def submit(service: Service) -> Ids:
            return service.requests.sampling.submit(client.owner, request)[0], ""

        return (await client.send(submit))[0]

    def _again(self, request: types.SampleRequest) -> types.SampleRequest:
        self.num_seq_ids += 1
        return request.model_copy(update={"seq_id": self.num_seq_ids})

    def _canceling(self, request_id: str) -> Request[None]:
        async def cancel(service: Service) -> None:
            service.requests.sampling.cancel(self.client.owner, request_id)

        return cancel

    def _decoded(self, request: types.SampleRequest) -> SampleRequest:
        params = request.sampling_params
        assert params.seed is not None
        return SampleRequest(
            request_id="",
            base_model=BASE,
            snapshot_id=self.sampler_id,
            prompt_T=np.array(request.prompt.to_ints(), dtype=np.int64),
            num_samples=request.num_samples,
            max_tokens=params.max_tokens,
            seed=params.seed,
        )

    def check(self, expected: str | None, possible: set[str]) -> None:
        """Each sample is of the weights that were published, whatever has been trained since, and of no other's."""
        for request, body in self.drawn:
            weights = possible if expected is None else {expected}
            if not any(_body(request, each) == body for each in weights):
                raise BrokenPromiseError(f"a sample of {self.sampler_id} is not of its weights")
        self.client.count("samples checked", len(self.drawn))


def _body(request: SampleRequest, weights: str) -> bytes:
    return encode_sample(SampleOutput(request_id="", sequences=sampled(request, weights)), SampleShape())
