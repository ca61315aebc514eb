"""What tenants get of so many workers, in simulated time: steps a second, and how long a result takes.

The server is the real one but for HTTP and its journal, and takes no time at all; workers and their costs are those of
`bench.scale`: half a second for a pass, and for the samples of a step. So this is what the order of work and its
placement come to; what the server itself takes is for `bench.scale`.

python -m bench.sizing
python -m bench.sizing --loop rl --samplers 0.5
python -m bench.sizing --tenants 4096 --workers 64 --rounds 3
"""

import argparse
import asyncio
import logging
import statistics
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from bench.harness import save_record
from bench.scale import COSTS, MAX_TOKENS, NUM_SAMPLES, NUM_SEQUENCES, NUM_TOKENS, PROMPT_TOKENS
from tests.simulation.virtual import World
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import Worker
from cookhouse.engine.simulated import SimulatedEngine
from cookhouse.engine.transports.simulated import Simulated
from cookhouse.server.pool.plans import WorkerPlan, plans_of, worker_options
from cookhouse.server.requests.intake import Arrived
from cookhouse.server.service import Service
from cookhouse.server.settings import ServiceOptions, Settings
from cookhouse.server.storage.journal import OFF
from cookhouse.server.storage.store.store import Store

_BASE = "cookhouse/tiny"
_GROUP_SIZE = 8
_SETTINGS = Settings(journal=OFF, session_seconds=1e9, silent_seconds=1e9, max_queued_requests=512)
_STEP_SECONDS = {"supervised": 0.5, "rl": 1.0}
"""Of a worker, for one step of a tenant."""


@dataclass
class Found:
    """What came when, on the simulated clock."""

    steps: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When a result came, and the seconds since it was asked for."""
    work: list[tuple[float, float]] = field(default_factory=list)
    """Of all workers: when a piece of it began, and its seconds."""

    def busy(self, began_at: float, ended_at: float) -> float:
        """Seconds of work between two times."""
        return sum(max(0.0, min(at + seconds, ended_at) - max(at, began_at)) for at, seconds in self.work)


class Tenant:
    """One model."""

    def __init__(self, service: Service, key: str, found: Found) -> None:
        self._service = service
        self._owner = service.keys.owner_of(key)
        self._found = found
        self._seq_id = 0
        self._session_id = self._model_id = ""

    async def create(self) -> None:
        session = await self._service.lifecycle.begin(
            self._owner,
            idempotency_key=None,
            display_name=None,
            user_metadata=None,
            project_id=None,
            sdk_version=None,
        )
        self._session_id = session.session_id
        request = types.CreateModelRequest(session_id=self._session_id, model_seq_id=0, base_model=_BASE)
        request_id, self._model_id = await self._accept("create_model", request)
        await self._result(request_id)

    async def train(self) -> "asyncio.Future[list[bytes]]":
        """Send a pass and a step; what waits for both results."""
        message = pb.ForwardBackwardRequest(model_id=self._model_id, seq_id=self._next_id(), loss_fn="cross_entropy")
        for _ in range(NUM_SEQUENCES):
            datum = message.data.add()
            datum.model_input.add().encoded_text.tokens = np.zeros(NUM_TOKENS, "<i4").tobytes()
            targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=np.zeros(NUM_TOKENS, "<i8").tobytes())
            datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
        content = await self._service.requests.training.read_pass(self._owner, message.SerializeToString())
        step = types.OptimStepRequest(model_id=self._model_id, seq_id=self._next_id(), optim_params=types.AdamParams())
        sent = [await self._accept("forward_backward", content), await self._accept("optim_step", step)]
        return asyncio.gather(*(self._result(request_id) for request_id, _ in sent))

    async def sample(self) -> None:
        """Publish, and draw the samples of a step."""
        seq_id = self._next_id()
        publication = types.SaveWeightsForSamplerRequest(
            model_id=self._model_id, seq_id=seq_id, sampling_session_seq_id=seq_id
        )
        await self._result((await self._accept("save_weights_for_sampler", publication))[0])
        request = types.SampleRequest(
            num_samples=_GROUP_SIZE,
            prompt=types.ModelInput.from_ints(list(range(1, PROMPT_TOKENS + 1))),
            sampling_params=types.SamplingParams(max_tokens=MAX_TOKENS, seed=1, stop=[-1]),
            sampling_session_id=f"{self._session_id}:sample:{seq_id}",
        )
        sent = [
            self._service.requests.sampling.submit(self._owner, request)[0] for _ in range(NUM_SAMPLES // _GROUP_SIZE)
        ]
        await asyncio.gather(*(self._result(request_id) for request_id in sent))

    async def _accept(self, kind: str, content: object) -> tuple[str, str]:
        return await self._service.requests.intake.accept(self._owner, content, Arrived(kind=kind, body=b""))

    async def _result(self, request_id: str) -> bytes:
        began_at = asyncio.get_running_loop().time()
        future = self._service.sequencer.futures.get(request_id, self._owner)
        result = await self._service.sequencer.futures.wait(future, 1e9)
        assert result is not None
        assert not result.is_failure, result.body
        now = asyncio.get_running_loop().time()
        self._found.waits.append((now, now - began_at))
        return result.body

    def _next_id(self) -> int:
        self._seq_id += 1
        return self._seq_id


async def supervised(tenant: Tenant, found: Found, _index: int) -> None:
    """The next step is sent before this one is answered."""
    under_way: deque[asyncio.Future[list[bytes]]] = deque()
    try:
        while True:
            under_way.append(await tenant.train())
            if len(under_way) > 1:
                await under_way.popleft()
                found.steps.append(asyncio.get_running_loop().time())
    finally:
        for each in under_way:
            each.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def rl(tenant: Tenant, found: Found, index: int) -> None:
    """Samples of new weights and then a step; every other tenant begins with one."""
    if index % 2:
        await (await tenant.train())
    while True:
        await tenant.sample()
        await (await tenant.train())
        found.steps.append(asyncio.get_running_loop().time())


LOOPS: Mapping[str, Callable[[Tenant, Found, int], Awaitable[None]]] = {"supervised": supervised, "rl": rl}


def simulate(loop: str, num_tenants: int, plans: list[WorkerPlan], rounds: float) -> dict[str, float]:
    """What so many tenants get in the time of so many steps of each, after a third of that."""
    seconds = rounds * max(1.0, num_tenants / len(plans)) * _STEP_SECONDS[loop]
    warmup = seconds / 3
    found = Found()

    async def main() -> None:
        service = _service(Path(folder), num_tenants, plans, found)
        await service.open()
        tenants = [Tenant(service, _key(index), found) for index in range(num_tenants)]
        for tenant in tenants:
            await tenant.create()
        running = [asyncio.ensure_future(LOOPS[loop](tenant, found, index)) for index, tenant in enumerate(tenants)]
        await asyncio.sleep(warmup)
        times.append(asyncio.get_running_loop().time())
        finished, _ = await asyncio.wait(running, timeout=seconds)
        times.append(asyncio.get_running_loop().time())
        for each in finished:
            each.result()
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await service.close()
        service.shut_down()

    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder, World(seed=1) as world:
        world.run(main())
    began_at, ended_at = times
    waits = sorted(wait for at, wait in found.waits if began_at <= at <= ended_at)
    return {
        "steps_per_second": sum(began_at <= at <= ended_at for at in found.steps) / seconds,
        "busy": found.busy(began_at, ended_at) / seconds,
        "wait_median_seconds": statistics.median(waits),
        "wait_p95_seconds": waits[int(0.95 * len(waits))],
    }


def _service(folder: Path, num_tenants: int, plans: list[WorkerPlan], found: Found) -> Service:
    costs = replace(COSTS, decode_token_seconds=COSTS.decode_token_seconds * _GROUP_SIZE)

    def make_engine(spend: Callable[[float], None]) -> SimulatedEngine:
        def spend_and_note(seconds: float) -> None:
            found.work.append((asyncio.get_running_loop().time(), seconds))
            spend(seconds)

        return SimulatedEngine([_BASE], costs=costs, spend=spend_and_note)

    def make_worker(plan: WorkerPlan) -> Worker:
        return Simulated(make_engine, worker_options(_SETTINGS, folder, plan))

    return Service(
        ServiceOptions(api_keys=[_key(index) for index in range(num_tenants)], state_dir=folder, settings=_SETTINGS),
        make_worker,
        plans=plans,
        store=Store(Path(":memory:")),
    )


def _key(index: int) -> str:
    return f"tml-bench-{index:04}"


def _plans(number: int, share: float | None) -> list[WorkerPlan]:
    if share is None or number == 1:
        return plans_of(workers=number)
    samplers = min(number - 1, max(1, round(share * number)))
    return plans_of(trainers=number - samplers, samplers=samplers)


def main() -> None:
    """Print a table, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=list(LOOPS), default="supervised")
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument("--tenants", default="1,4,16,64")
    parser.add_argument("--samplers", type=float, help="this share of the workers only samples, the others only train")
    parser.add_argument("--rounds", type=float, default=12.0, help="steps of each tenant, about")
    parser.add_argument("--save", action="store_true", help="write its record under bench/results")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    figures: dict[str, float] = {}
    for num_tenants in (int(word) for word in options.tenants.split(",")):
        for number in (int(word) for word in options.workers.split(",")):
            one = simulate(options.loop, num_tenants, _plans(number, options.samplers), options.rounds)
            print(
                f"{num_tenants:3} tenants, {number:2} workers: {one['steps_per_second']:6.2f} steps/s, "
                f"{one['busy']:5.2f} busy; a result after {one['wait_median_seconds']:6.2f} s, "
                f"{one['wait_p95_seconds']:6.2f} at the 95th percentile"
            )
            figures |= {f"{name}_of_{num_tenants}_at_{number}": value for name, value in one.items()}
    if options.save:
        most = f"{options.tenants.rpartition(',')[2]}x{options.workers.rpartition(',')[2]}"
        save_record(f"sizing-{options.loop}-{most}{'-apart' if options.samplers else ''}", vars(options), figures)


if __name__ == "__main__":
    main()
