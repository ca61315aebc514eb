"""Suite that every sampling client passes."""

import asyncio

import tinker

from cookhouse.testing.contract import require
from cookhouse.testing.service import OTHER_TOKENS, TOKENS, ServiceContract, connected, refused, step
from cookhouse.training import ServiceClient

_MAX_TOKENS = 6


class SamplingClientContract(ServiceContract):
    """The suite of `cookhouse.training.SamplingClient`, by way of the service that makes it: `make` gives a
    `cookhouse.training.Connect`.
    """

    @connected
    async def test_samples_are_as_asked_for(self, service: ServiceClient) -> None:
        sampler = await self.sampler(service)
        response = await sampler.sample(prompt(), 3, params(seed=1))
        require(len(response.sequences) == 3, f"three samples are three, not {len(response.sequences)}")
        for sequence in response.sequences:
            num_tokens = len(sequence.tokens)
            require(num_tokens <= _MAX_TOKENS, f"a sample has at most max_tokens tokens, not {num_tokens}")
            require(len(sequence.logprobs or ()) == num_tokens, "a sample has a logprob for each token")
            require(all(value <= 0 for value in sequence.logprobs or ()), "logprobs are at most 0")

    @connected
    async def test_the_same_seed_gives_the_same_samples(self, service: ServiceClient) -> None:
        sampler = await self.sampler(service)
        one = await sampler.sample(prompt(), 2, params(seed=5))
        others = await asyncio.gather(*(sampler.sample(prompt(OTHER_TOKENS), 2, params(seed=n)) for n in range(3)))
        again = await sampler.sample(prompt(), 2, params(seed=5))
        require(tokens(one) == tokens(again), "a seed gives the same tokens again, whatever else is asked")
        require(len(others) == 3, "requests may be in flight together")

    @connected
    async def test_stops_at_a_token(self, service: ServiceClient) -> None:
        sampler = await self.sampler(service)
        free = tokens(await sampler.sample(prompt(), 1, params(temperature=0.0)))[0]
        [sequence] = (await sampler.sample(prompt(), 1, params(temperature=0.0, stop=[free[0]]))).sequences
        require(
            list(sequence.tokens) == free[:1] and sequence.stop_reason == "stop",
            f"an answer ends with the token to stop at, by reason of stop; not {list(sequence.tokens)} by "
            f"{sequence.stop_reason}",
        )

    @connected
    async def test_says_when_it_was_cut(self, service: ServiceClient) -> None:
        sampler = await self.sampler(service)
        free = tokens(await sampler.sample(prompt(), 1, params(temperature=0.0, stop=[])))[0]
        short = params(temperature=0.0, stop=[], max_tokens=1)
        [sequence] = (await sampler.sample(prompt(), 1, short)).sequences
        require(len(free) > 1, "without anything to stop at, an answer goes on")
        require(sequence.stop_reason == "length", f"an answer that was cut says length, not {sequence.stop_reason}")

    @connected
    async def test_logprobs_of_a_text(self, service: ServiceClient) -> None:
        sampler = await self.sampler(service)
        found = await sampler.compute_logprobs(prompt())
        require(len(found) == len(TOKENS), f"a logprob for each token, {len(TOKENS)}, not {len(found)}")
        require(found[0] is None, "the first token has none before it, so its logprob is None")
        require(all(value is not None and value <= 0 for value in found[1:]), "the others are at most 0")

    @connected
    async def test_samples_are_as_likely_as_they_say(self, service: ServiceClient) -> None:
        sampler = await self.sampler(service)
        [sequence] = (await sampler.sample(prompt(), 1, params(seed=3))).sequences
        whole = prompt([*TOKENS, *sequence.tokens])
        found = [float(value or 0) for value in await sampler.compute_logprobs(whole)][len(TOKENS) :]
        said = [float(value) for value in sequence.logprobs or ()]
        require(
            self.are_close(found, said),
            f"at temperature 1 the logprobs of a sample are those of its text, {found}, not {said}",
        )

    @connected
    async def test_weights_stay_as_they_were(self, service: ServiceClient) -> None:
        trainer = await self.trainer(service)
        sampler = await trainer.save_weights_and_get_sampling_client()
        before = await sampler.compute_logprobs(prompt())
        for _ in range(3):
            await step(trainer)
        after = await sampler.compute_logprobs(prompt())
        require(before == after, "a sampling client keeps its weights when training goes on")
        newer = await trainer.save_weights_and_get_sampling_client()
        require(await newer.compute_logprobs(prompt()) != before, "a new one has those that were trained since")

    @connected
    async def test_weights_that_are_not_there_are_refused(self, service: ServiceClient) -> None:
        await self.sampler(service)

        async def use() -> object:
            missing = await service.create_sampling_client(model_path="tinker://no-such-run/sampler_weights/none")
            return await missing.compute_logprobs(prompt())

        await refused(use, "sampling from weights that are not there")


def prompt(text: "list[int] | tuple[int, ...]" = TOKENS) -> tinker.ModelInput:
    return tinker.ModelInput.from_ints(list(text))


def params(
    *, seed: int = 0, temperature: float = 1.0, stop: list[int] | None = None, max_tokens: int = _MAX_TOKENS
) -> tinker.SamplingParams:
    return tinker.SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed, stop=stop)


def tokens(response: tinker.SampleResponse) -> list[list[int]]:
    return [list(sequence.tokens) for sequence in response.sequences]
