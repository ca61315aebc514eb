"""Catches a tenant that keeps another waiting, however much it asks for: in turns of the engine, on a virtual clock."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.simulated import Costs
from cookhouse.server.requests.intake import Arrived
from cookhouse.server.settings import Settings
from tests.simulation.server import BASE, SimulatedServer
from tests.simulation.virtual import World

TURN_SECONDS = 10.0
"""Of a full one: a pass of as many tokens as may run together, or a decode step."""
MAX_PASS_TOKENS = 1024
UNDER_WAY_SECONDS = 0.6 * TURN_SECONDS
COSTS = Costs(
    pass_seconds=TURN_SECONDS / 10,
    pass_token_seconds=0.9 * TURN_SECONDS / MAX_PASS_TOKENS,
    step_seconds=TURN_SECONDS / 10,
    decode_seconds=TURN_SECONDS,
    decode_token_seconds=0.0,
    prompt_token_seconds=0.0,
    save_seconds=0.0,
)
A, B = "tml-tenant-a", "tml-tenant-b"
SETTINGS = Settings(
    journal="off", max_pass_tokens=MAX_PASS_TOKENS, max_queued_requests=512, session_seconds=1e9, silent_seconds=1e9
)


class Tenant:
    def __init__(self, server: SimulatedServer, key: str) -> None:
        self.service = server.service
        self.owner = self.service.keys.owner_of(key)
        self.session_id = ""
        self.num = 0

    async def begin(self) -> "Tenant":
        session = await self.service.lifecycle.begin(
            self.owner, idempotency_key=None, display_name=None, user_metadata=None, project_id=None, sdk_version=None
        )
        self.session_id = session.session_id
        return self

    async def model(self) -> str:
        self.num += 1
        request = types.CreateModelRequest(session_id=self.session_id, model_seq_id=self.num, base_model=BASE)
        request_id, model_id = await self.accept("create_model", request)
        await self.answer(request_id)
        return model_id

    async def accept(self, kind: str, content: object) -> tuple[str, str]:
        return await self.service.requests.intake.accept(self.owner, content, Arrived(kind=kind, body=b""))

    async def sampler(self) -> str:
        self.num += 1
        request = types.CreateSamplingSessionRequest(
            session_id=self.session_id, sampling_session_seq_id=self.num, base_model=BASE
        )
        return (await self.service.requests.sampling.create_sampler(self.owner, request)).sampler_id

    async def a_pass(self, model_id: str, seq_id: int, num_tokens: int = MAX_PASS_TOKENS) -> str:
        message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn="cross_entropy")
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = np.zeros(num_tokens, "<i4").tobytes()
        targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=np.zeros(num_tokens, "<i8").tobytes())
        datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
        content = await self.service.requests.training.read_pass(self.owner, message.SerializeToString())
        return (await self.accept("forward_backward", content))[0]

    def a_sample(self, sampler_id: str, *, num_prompt_tokens: int = 1, max_tokens: int = 1) -> str:
        request = types.SampleRequest(
            prompt=types.ModelInput.from_ints([1] * num_prompt_tokens),
            sampling_params=types.SamplingParams(max_tokens=max_tokens, seed=1, stop=[]),
            sampling_session_id=sampler_id,
        )
        return self.service.requests.sampling.submit(self.owner, request)[0]

    async def answer(self, request_id: str) -> float:
        """Wait for an answer, which is no failure; gives the time."""
        result = await self.service.sequencer.futures.wait(
            self.service.sequencer.futures.get(request_id, self.owner), 1e6
        )
        assert result is not None
        assert not result.is_failure, result.body
        return asyncio.get_running_loop().time()


Load = Callable[[Tenant], Awaitable[None]]
Ask = Callable[[Tenant, str, str], Awaitable[str]]
"""Of a model, or of a sampler, that were made before."""


async def fifty_models(tenant: Tenant) -> None:
    for model_id in [await tenant.model() for _ in range(50)]:
        for seq_id in (1, 2):
            await tenant.a_pass(model_id, seq_id)


async def small_passes(tenant: Tenant) -> None:
    model_id = await tenant.model()
    for seq_id in range(1, 201):
        await tenant.a_pass(model_id, seq_id, num_tokens=8)


async def many_samples(tenant: Tenant) -> None:
    sampler_id = await tenant.sampler()
    for _ in range(400):
        tenant.a_sample(sampler_id, max_tokens=100)


async def everything(tenant: Tenant) -> None:
    await fifty_models(tenant)
    await many_samples(tenant)


async def ask_to_train(tenant: Tenant, model_id: str, _sampler_id: str) -> str:
    return await tenant.a_pass(model_id, 2)


async def ask_to_step(tenant: Tenant, model_id: str, _sampler_id: str) -> str:
    request = types.OptimStepRequest(model_id=model_id, seq_id=2, optim_params=types.AdamParams())
    return (await tenant.accept("optim_step", request))[0]


async def ask_to_sample(tenant: Tenant, _model_id: str, sampler_id: str) -> str:
    return tenant.a_sample(sampler_id)


async def ask_nothing(_tenant: Tenant) -> None:
    return


def seconds(folder: Path, load: Load, ask: Ask) -> float:
    """How long B waits for an answer while A has its load under way."""

    async def main() -> float:
        server = SimulatedServer(folder, {A: "", B: ""}, settings=SETTINGS, costs=COSTS)
        await server.open()
        a, b = [await Tenant(server, key).begin() for key in (A, B)]
        model_id, sampler_id = await b.model(), await b.sampler()
        await load(a)
        await b.answer(await b.a_pass(model_id, 1))  # it has just had a turn
        await asyncio.sleep(TURN_SECONDS - UNDER_WAY_SECONDS)
        began_at = asyncio.get_running_loop().time()
        waited = await b.answer(await ask(b, model_id, sampler_id)) - began_at
        await server.close()
        return waited

    with World(0) as world:
        return world.run(main())


@pytest.mark.parametrize("load", [fifty_models, small_passes, many_samples, everything])
@pytest.mark.parametrize("ask", [ask_to_train, ask_to_step, ask_to_sample])
def test_a_tenant_waits_at_most_two_turns_of_anothers(tmp_path: Path, load: Load, ask: Ask) -> None:
    """A has a hundred turns of work before it, in training, in sampling, or in both. One more may be under way."""
    alone = seconds(tmp_path / "alone", ask_nothing, ask)
    waited = seconds(tmp_path / "loaded", load, ask)
    assert waited - alone <= UNDER_WAY_SECONDS + 2 * TURN_SECONDS
