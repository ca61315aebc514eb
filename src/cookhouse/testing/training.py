"""Suite that every training client passes."""

import asyncio
import math
from typing import TYPE_CHECKING

import numpy as np
import tinker

from cookhouse.extras import require_engine
from cookhouse.testing.contract import require
from cookhouse.testing.service import (
    OTHER_TOKENS,
    SMALL_STEP,
    TOKENS,
    ServiceContract,
    adam,
    connected,
    datum,
    logprobs,
    logprobs_of,
    refused,
    step,
)
from cookhouse.training import ServiceClient

if TYPE_CHECKING:
    import torch


class TrainingClientContract(ServiceContract):
    """The suite of `cookhouse.training.TrainingClient`, by way of the service that makes it: `make` gives a
    `cookhouse.training.Connect`.
    """

    @connected
    async def test_logprobs_are_of_every_target(self, service: ServiceClient) -> None:
        client = await self.trainer(service)
        output = await client.forward([datum(TOKENS, 0.5), datum(OTHER_TOKENS)], "cross_entropy")
        found = logprobs_of(output)
        sizes = [len(each) for each in found]
        require(sizes == [len(TOKENS) - 1, len(OTHER_TOKENS) - 1], f"a logprob for each target, not {sizes}")
        require(all(value <= 0 for each in found for value in each), "logprobs are at most 0")
        loss = -0.5 * sum(found[0]) - sum(found[1])
        said = output.metrics["loss:sum"]
        require(math.isclose(said, loss, rel_tol=1e-2), f"loss:sum is -Σ weight · logprob, {loss:g}, not {said:g}")

    @connected
    async def test_the_same_seed_gives_the_same_model(self, service: ServiceClient) -> None:
        one, other = await self.trainer(service), await self.trainer(service)
        for client in (one, other):
            await step(client)
        require(
            self.are_close(await logprobs(one), await logprobs(other)),
            "two models of one seed, trained alike, are the same, and do not touch each other",
        )

    @connected
    async def test_training_lowers_the_loss(self, service: ServiceClient) -> None:
        client = await self.trainer(service)
        before = sum(await logprobs(client))
        for _ in range(5):
            await step(client, learning_rate=SMALL_STEP)
        after = sum(await logprobs(client))
        require(after > before, f"five steps on a text make it likelier; its logprob went from {before} to {after}")

    @connected
    async def test_forward_leaves_no_gradient(self, service: ServiceClient) -> None:
        plain, looked = await self.trainer(service), await self.trainer(service)
        await logprobs(looked, OTHER_TOKENS)
        for client in (plain, looked):
            await step(client)
        for tokens in (TOKENS, OTHER_TOKENS):
            same = self.are_close(await logprobs(plain, tokens), await logprobs(looked, tokens))
            require(same, "forward leaves no gradient")

    @connected
    async def test_gradients_add_up_until_a_step(self, service: ServiceClient) -> None:
        whole, halves = await self.trainer(service), await self.trainer(service)
        await whole.forward_backward([datum(TOKENS), datum(OTHER_TOKENS)], "cross_entropy")
        await halves.forward_backward([datum(TOKENS)], "cross_entropy")
        await halves.forward_backward([datum(OTHER_TOKENS)], "cross_entropy")
        for client in (whole, halves):
            await client.optim_step(adam())
        for tokens in (TOKENS, OTHER_TOKENS):
            require(
                self.are_close(await logprobs(whole, tokens), await logprobs(halves, tokens)),
                "a batch in two calls has the gradient of the batch in one",
            )

    @connected
    async def test_requests_take_effect_in_order(self, service: ServiceClient) -> None:
        waited, piled = await self.trainer(service), await self.trainer(service)
        for _ in range(3):
            await step(waited)
        requests = []
        for _ in range(3):
            requests += [piled.forward_backward([datum()], "cross_entropy"), piled.optim_step(adam())]
        seen = piled.forward([datum()], "cross_entropy")
        await asyncio.gather(*requests)
        require(
            self.are_close(await logprobs(waited), logprobs_of(await seen)[0]),
            "requests take effect in the order submitted, awaited or not",
        )

    @connected
    async def test_a_loss_of_ones_own_is_as_the_built_in_one(self, service: ServiceClient) -> None:
        require_engine("the promise of losses of one's own", ["torch"])
        built_in, own = await self.trainer(service), await self.trainer(service)
        await step(built_in)
        output = await own.forward_backward_custom([datum()], _negative_log_likelihood)
        await own.optim_step(adam())
        require("own" in output.metrics, "the metrics of a loss of one's own come back")
        require(
            self.are_close(await logprobs(built_in), await logprobs(own)),
            "the same loss as a function trains alike",
        )

    @connected
    async def test_policy_losses_start_at_a_ratio_of_one(self, service: ServiceClient) -> None:
        client = await self.trainer(service)
        sampled = await logprobs(client)
        advantages = np.linspace(-1, 1, len(sampled) + 1, dtype=np.float32)[1:]
        inputs = {
            "target_tokens": datum().loss_fn_inputs["target_tokens"],
            "logprobs": tinker.TensorData.from_numpy(np.array(sampled, np.float32)),
            "advantages": tinker.TensorData.from_numpy(advantages),
        }
        data = [tinker.Datum(model_input=datum().model_input, loss_fn_inputs=inputs)]
        for loss in ("importance_sampling", "ppo"):
            output = await client.forward(data, loss)
            loss_sum, wanted = output.metrics["loss:sum"], -float(advantages.sum())
            near = abs(loss_sum - wanted) <= self.tolerance * len(sampled)
            require(near, f"{loss} of what the weights sampled is -Σ advantage, {wanted:g}, not {loss_sum:g}")

    @connected
    async def test_saved_state_restores_the_optimizer(self, service: ServiceClient) -> None:
        client = await self.trainer(service)
        await step(client)
        saved = await client.save_state("contract-state")
        back = await service.create_training_client_from_state_with_optimizer(saved.path)
        fresh = await service.create_training_client_from_state(saved.path)
        kept = await logprobs(client)
        for restored in (back, fresh):
            require(self.are_close(kept, await logprobs(restored)), "saved weights are those that were trained")
        for each in (client, back):
            await step(each, OTHER_TOKENS)
        require(
            self.are_close(await logprobs(client), await logprobs(back)),
            "training goes on from a saved state as it would have without the save",
        )

    @connected
    async def test_saved_weights_are_sampled_from(self, service: ServiceClient) -> None:
        client = await self.trainer(service)
        await step(client)
        saved = await client.save_weights_for_sampler("contract-sampler")
        sampler = await service.create_sampling_client(model_path=saved.path)
        found = [float(value or 0) for value in await sampler.compute_logprobs(_prompt())][1:]
        require(
            self.are_close(await logprobs(client), found),
            "the weights that were saved for sampling are those that were trained",
        )

    @connected
    async def test_a_checkpoint_that_is_not_there_is_refused(self, service: ServiceClient) -> None:
        await self.trainer(service)
        path = "tinker://no-such-run/weights/nothing"

        async def load() -> object:
            return await service.create_training_client_from_state(path)

        await refused(load, "loading a checkpoint that is not there")

    @connected
    async def test_a_deleted_checkpoint_is_gone_and_no_other(self, service: ServiceClient) -> None:
        client = await self.trainer(service)
        first, second = await client.save_state("contract-first"), await client.save_state("contract-second")
        await service.delete_checkpoint(first.path)

        async def load() -> object:
            return await service.create_training_client_from_state_with_optimizer(first.path)

        await refused(load, "loading a checkpoint that was deleted")
        await service.create_training_client_from_state_with_optimizer(second.path)


def _prompt() -> tinker.ModelInput:
    return tinker.ModelInput.from_ints(list(TOKENS))


def _negative_log_likelihood(
    data: list[tinker.Datum], logprobs_D_T: "list[torch.Tensor]"
) -> "tuple[torch.Tensor, dict[str, float]]":
    import torch

    del data
    loss = -torch.cat(logprobs_D_T).sum()
    return loss, {"own": float(loss.detach())}
