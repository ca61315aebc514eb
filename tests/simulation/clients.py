"""Clients that ask a simulated server for anything, in any order, and hold it to what it promised them."""

import asyncio
import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import numpy as np
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import AdamStep, ForwardBackward, LoraSpec, SampleOutput, SampleRequest, TrainingDatum
from cookhouse.engine.simulated import State, created, sampled
from cookhouse.server.refusals import BusyError, GoneError, NotFoundError
from cookhouse.server.sequencer.futures import JSON, Result
from cookhouse.server.wire import SampleShape, encode_sample
from tests.simulation.history import Asked, BrokenPromiseError, History
from tests.simulation.server import BASE, BUG, REFUSAL, SimulatedServer

_LONGEST_SECONDS = 3600
"""No answer may take longer than that."""


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


class Client:
    """One tenant's process."""

    def __init__(self, name: str, server: SimulatedServer, ledger: Ledger, seed: int, habits: Habits) -> None:
        self.owner = server.service.keys.owner_of(name)
        self._service = server.service
        self._server = server
        self._ledger = ledger
        self._habits = habits
        self._chance = random.Random(f"{name} of {seed}")
        self._session_id = ""
        self._num_models = self._num_samplers = 0
        self._is_over = False
        """Whether its session may have ended."""
        self._saved: list[tuple[str, State]] = []
        """Paths of its checkpoints, and the states in them."""
        self._requests: list[str] = []

    async def live(self) -> None:
        """Use one session after another until enough has been done."""
        await asyncio.sleep(self._chance.random())
        while self._ledger.num_left > 0:
            await self._use_session()

    async def _use_session(self) -> None:
        key = f"{self._chance.random()}"
        for _ in range(self._chance.choice([1, 1, 2])):
            session = await self._service.begin_session(
                self.owner, idempotency_key=key, display_name=None, user_metadata=None, project_id=None
            )
            self.check(self._session_id != session.session_id or _ > 0, "a session is that of another key")
            self._session_id = session.session_id
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
        await self._service.finish_session(self._session_id, self.owner, reason="success", detail=None)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(10.0)
            if not self._is_over:
                self._service.sessions.session(self._session_id, self.owner)

    async def _train(self) -> None:
        """Make a model, train it for some rounds, and check what came of it."""
        run = await self._make_model()
        if run is None:
            return
        sampling = await self._new_sampler()
        for _ in range(self._chance.randint(1, 12)):
            if self._ledger.num_left <= 0:
                break
            self._misbehave()
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
        path, state = self._chance.choice([("", State(BASE)), *self._saved])
        request = types.CreateSamplingSessionRequest(
            session_id=self._session_id,
            sampling_session_seq_id=self.new_sampler(),
            base_model=BASE,
            model_path=path or None,
        )
        sampler = await self._service.sampling.create_sampler(self.owner, request)
        return Sampling(self, sampler.sampler_id, is_published=False, expected=state.weights)

    async def _make_model(self) -> "Run | None":
        self._num_models += 1
        if self._saved and self._chance.random() < 0.5:
            path, state = self._chance.choice(self._saved)
            request = types.LoadWeightsRequest(
                path=path, optimizer=True, session_id=self._session_id, model_seq_id=self._num_models
            )
            request_id, model_id = await self.send(lambda: self._service.training.load_weights(self.owner, request))
            self.count("loads")
        else:
            lora = LoraSpec(rank=self._chance.choice([1, 8]), seed=self._chance.getrandbits(31))
            state = created(BASE, lora)
            creation = types.CreateModelRequest(
                session_id=self._session_id,
                model_seq_id=self._num_models,
                base_model=BASE,
                lora_config=types.LoraConfig(rank=lora.rank, seed=lora.seed),
            )

            async def create() -> tuple[str, str]:
                model = self._service.training.create_model(self.owner, creation)
                return model.creation, model.model_id

            request_id, model_id = await self.send(create)
            self.count("models")
        if (await self.result(request_id)).is_failure:
            return None
        self._ledger.names.append(("model", self.owner, model_id))
        return Run(self, model_id, History(state, self._service.settings.gap_seconds))

    async def _be_silent(self) -> None:
        self._is_over = True
        self.count("silences")
        await asyncio.sleep(2 * self._service.settings.session_seconds)
        try:
            self._service.sessions.session(self._session_id, self.owner)
        except GoneError:
            raise SessionOverError from None
        raise BrokenPromiseError("a session that was silent for twice as long as it may is alive")

    def _misbehave(self) -> None:
        """Ask for what is another tenant's."""
        names = self._ledger.names
        if not names or self._chance.random() >= self._habits.foreign:
            return
        kind, owner, name = self._chance.choice(names)
        if owner == self.owner:
            return
        self.count("foreign requests")
        look_up: Callable[[str, str], object] = {
            "model": self._service.sessions.model,
            "sampler": self._service.sessions.sampler,
            "request": self._service.futures.get,
        }[kind]
        try:
            look_up(name, self.owner)
        except (NotFoundError, GoneError):
            return
        raise BrokenPromiseError(f"{self.owner} was given the {kind} {name} of {owner}")

    async def end_session(self) -> None:
        """Leave while requests are under way."""
        self._is_over = True
        await self._service.finish_session(self._session_id, self.owner, reason="interrupted", detail=None)

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
    def service(self) -> "SimulatedServer":
        return self._server

    def new_sampler(self) -> int:
        self._num_samplers += 1
        return self._num_samplers

    def keep(self, path: str, state: State) -> None:
        self._saved = [*self._saved[-3:], (path, state)]

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

    async def send(self, submit: Callable[[], Awaitable[tuple[str, str]]]) -> tuple[str, str]:
        """Submit a request until it is accepted, now and then twice; gives its ids."""
        self._ledger.num_left -= 1
        self.count("requests")
        while True:
            try:
                ids = await submit()
                break
            except BusyError:
                self.count("busy")
                await asyncio.sleep(1.0)
        if self._chance.random() < self._habits.duplicates:
            self.count("duplicates")
            again = await submit()
            self.check(again == ids, f"a duplicate of {ids} was accepted as {again}")
        return ids

    async def result(self, request_id: str) -> Result:
        """The answer, which there must be one of, the same however often it is asked for."""
        futures, settings = self._service.futures, self._service.settings
        future = futures.get(request_id, self.owner)
        began_at = time.monotonic()
        while True:
            if not self._is_over:
                self._service.sessions.hear(future.session_id)
            result = await futures.wait(future, settings.long_poll_seconds)
            if result is not None:
                break
            self.check(time.monotonic() - began_at < _LONGEST_SECONDS, f"{request_id} has no answer")
        if self._chance.random() < self._habits.duplicates:
            self.check(await futures.wait(future, 1.0) is result, f"{request_id} has two answers")
        self.check(self._server.num_answered_twice == 0, "a request was answered twice")
        if result.is_failure:
            self._check_failure(result)
        self._ledger.note(request_id, result.body, result.status)
        return result

    def _check_failure(self, result: Result) -> None:
        """Only what went wrong may fail a request, and the one who is to blame is named."""
        content = json.loads(result.body)
        rates = self._server.faults.rates
        reasons = {
            (REFUSAL, "user"): rates.refused > 0,
            (BUG, "server"): rates.failed > 0,
            ("the engine was lost", "server"): rates.lost > 0,
            ("an injected loss", "server"): rates.lost > 0,
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
    history: History
    num_seq_ids: int = 0
    is_lost: bool = False
    """Whether the worker that held it is gone."""
    waiting: list[tuple[Asked, str]] = field(default_factory=list)
    samplers: list["Sampling"] = field(default_factory=list)
    saves: list[tuple[int, str]] = field(default_factory=list)

    async def round(self) -> None:
        """Some passes, a step, and maybe a publication, sent in any order; then their answers."""
        chance, habits = self.client.chance, self.client.habits
        plan: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        kinds = ["pass"] * chance.randint(1, 3) + ["step"]
        if chance.random() < 0.3:
            kinds.append("publish")
        if chance.random() < habits.saves:
            kinds.append("save")
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
        history = self.history
        states = history.explain()
        possible = {state.weights for state in (history.begin, *states.values())}
        for sampling in self.samplers:
            published = history.state_at(sampling.seq_id, states)
            sampling.check(None if published is None else published.weights, possible)
        for seq_id, path in self.saves:
            state = history.state_at(seq_id, states)
            if state is not None:
                self.client.keep(path, replace(state, gradient=""))
        self.client.count("explained", len(states))

    def _sending(self, kind: str, seq_id: int) -> Callable[[], Awaitable[None]]:
        return {"pass": self._send_pass, "step": self._send_step, "publish": self._publish, "save": self._save}[kind](
            seq_id
        )

    def _send_pass(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        chance = self.client.chance
        tokens_T = np.arange(chance.randint(2, 6), dtype=np.int64) + chance.randrange(1000)
        targets_T = tokens_T + 1
        is_scored = chance.random() < self.client.habits.forward_only
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
        work = None if is_scored else request
        training = self.client.service.service.training
        return self._sender(seq_id, work, lambda: training.forward_backward(self.client.owner, body))

    def _send_step(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        adam = AdamStep(learning_rate=self.client.chance.random(), beta1=0.9, beta2=0.95, eps=1e-12)
        request = types.OptimStepRequest(
            model_id=self.model_id, seq_id=seq_id, optim_params=types.AdamParams(learning_rate=adam.learning_rate)
        )

        async def submit() -> tuple[str, str]:
            return self.client.service.service.training.optim_step(self.client.owner, request), self.model_id

        return self._sender(seq_id, adam, submit)

    def _publish(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        number = self.client.new_sampler()
        request = types.SaveWeightsForSamplerRequest(
            model_id=self.model_id, seq_id=seq_id, sampling_session_seq_id=number
        )

        async def submit() -> tuple[str, str]:
            return self.client.service.service.saving.save_for_sampler(self.client.owner, request), self.model_id

        return self._sender(seq_id, None, submit)

    def _save(self, seq_id: int) -> Callable[[], Awaitable[None]]:
        request = types.SaveWeightsRequest(model_id=self.model_id, seq_id=seq_id, path=f"s{seq_id}")

        async def submit() -> tuple[str, str]:
            return self.client.service.service.saving.save_state(self.client.owner, request), self.model_id

        return self._sender(seq_id, None, submit)

    def _sender(
        self, seq_id: int, work: ForwardBackward | AdamStep | None, submit: Callable[[], Awaitable[tuple[str, str]]]
    ) -> Callable[[], Awaitable[None]]:
        async def send() -> None:
            arrived_at = time.monotonic()
            request_id, _ = await self.client.send(submit)
            if time.monotonic() > arrived_at:  # it was refused for a while
                arrived_at = time.monotonic()
            asked = Asked(seq_id=seq_id, work=work, arrived_at=arrived_at)
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
                asked.number = number if asked.work is not None else None
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
                client.service.service.sampling.cancel(client.owner, request_id)
        for request_id, request in under_way:
            result = await client.result(request_id)
            if result.is_failure:
                is_lost = b"injected loss" in result.body
                client.check(self.is_published or not is_lost, "a sample that can be drawn again was given up")
            elif self.expected is None:
                self.drawn.append((self._decoded(request), result.body))
            else:
                is_right = _body(self._decoded(request), self.expected) == result.body
                client.check(is_right, f"a sample of {self.sampler_id} is not of its weights")

    async def _send(self, request: types.SampleRequest) -> str:
        client = self.client

        async def submit() -> tuple[str, str]:
            return client.service.service.sampling.submit(client.owner, request)[0], ""

        return (await client.send(submit))[0]

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
