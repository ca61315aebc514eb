"""What a run does from its first call to its last, through the unmodified SDK."""

import asyncio
import math

import pytest
import tinker
from tests.contract.calls import BASE_MODEL, DATA, PROMPT, gradient_norm, greedy, new_trainer, train
from tests.server.fake_engine import END_TOKEN
from tests.server.hosting import KEY, Host
from tinker import types
from transformers import AutoTokenizer

from cookhouse.training import connect_to


def test_capabilities_name_the_base_model(host: Host) -> None:
    """Would catch a server that offers nothing, or a model under another name than create_model takes."""
    rest = tinker.RestClient(base_url=host.url, api_key=KEY)
    supported = rest.get_server_capabilities().result().supported_models
    assert [model.model_name for model in supported] == [BASE_MODEL]
    assert supported[0].max_context_length is not None


def test_info_describes_the_run(trainer: tinker.TrainingClient) -> None:
    """Would catch a get_info from which the SDK cannot find the base model's tokenizer."""
    info = trainer.get_info()
    assert (info.model_data.model_name, info.lora_rank, info.is_lora) == (BASE_MODEL, 8, True)


def test_training_lowers_the_loss(trainer: tinker.TrainingClient) -> None:
    """Would catch a gradient of the wrong sign, lost, or applied to the wrong model."""
    losses = train(trainer, 8)
    assert losses[-1] < 0.98 * losses[0]


def test_forward_leaves_no_gradient(trainer: tinker.TrainingClient) -> None:
    """Would catch `forward_only` being ignored: evaluation would then train."""
    trainer.forward(DATA, "cross_entropy").result()
    assert gradient_norm(trainer) == 0.0


def test_loading_into_an_existing_model(client: tinker.ServiceClient) -> None:
    """Would catch the SDK's older addressing (model_id and seq_id) being unsupported."""
    first = new_trainer(client)
    train(first, 2)
    path = first.save_state("older").result().path
    expected = train(first, 1)
    second = new_trainer(client, seed=2)
    with pytest.warns(FutureWarning, match="load_state"):
        second.load_state_with_optimizer(path).result()
    assert train(second, 1) == expected


def test_seeds_repeat_and_samples_of_one_request_differ(client: tinker.ServiceClient) -> None:
    """Would catch a seed that is dropped, or shared by all samples of a request."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    params = types.SamplingParams(max_tokens=12, temperature=2.0, seed=2**64 - 1, stop=[])
    first, second = (sampler.sample(PROMPT, 4, params).result() for _ in range(2))
    tokens = [list(sequence.tokens) for sequence in first.sequences]
    assert tokens == [list(sequence.tokens) for sequence in second.sequences]
    assert len({tuple(one) for one in tokens}) > 1
    assert len({sequence.sequence_id for sequence in [*first.sequences, *second.sequences]}) == 8
    for sequence in first.sequences:
        assert sequence.logprobs is not None
        assert len(sequence.logprobs) == len(sequence.tokens) == 12
        assert sequence.stop_reason == "length"


def test_stop_token_ends_and_is_kept(client: tinker.ServiceClient) -> None:
    """Would catch a stop token that is cut off, which renderers look for, or a wrong stop_reason."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    whole = list(sampler.sample(PROMPT, 1, greedy(8)).result().sequences[0].tokens)
    assert len(whole) == 8
    stopped = sampler.sample(PROMPT, 1, greedy(8, stop=[whole[2]])).result().sequences[0]
    assert list(stopped.tokens) == whole[: whole.index(whole[2]) + 1]
    assert stopped.stop_reason == "stop"


def test_stop_string_ends_and_is_kept(host: Host, client: tinker.ServiceClient) -> None:
    """Would catch a stop string compared with tokens, found late, or cut off."""
    info = next(iter(host.service.requests.base_models))
    tokenizer = None if info.architecture == "fake" else AutoTokenizer.from_pretrained(info.tokenizer_id)

    def text(tokens: list[int]) -> str:
        return "".join(chr(32 + one) for one in tokens) if tokenizer is None else str(tokenizer.decode(tokens))

    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    whole = list(sampler.sample(PROMPT, 1, greedy(8)).result().sequences[0].tokens)
    wanted = text(whole[2:4])
    expected = next(whole[:end] for end in range(1, 9) if wanted in text(whole[:end]))
    stopped = sampler.sample(PROMPT, 1, greedy(8, stop=[wanted])).result().sequences[0]
    assert (list(stopped.tokens), stopped.stop_reason) == (expected, "stop")


@pytest.mark.parametrize("kind", ["texts", "tokens"])
def test_end_tokens_stop_beside_other_stops(host: Host, client: tinker.ServiceClient, kind: str) -> None:
    """Would catch a base model that writes on into the next document, since a caller named a stop of its own."""
    is_fake = next(iter(host.service.requests.base_models)).architecture == "fake"
    ends = {END_TOKEN} if is_fake else {2022, 2024}  # <|endoftext|> and <|im_end|>
    stop: list[str] | list[int] = ["never there"] if kind == "texts" else [60]
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    sampling = types.SamplingParams(max_tokens=60, temperature=1.5, stop=stop, seed=3)
    sequences = sampler.sample(PROMPT, 64, sampling).result().sequences
    assert not any(ends & set(sequence.tokens[:-1]) for sequence in sequences)
    ended = [sequence for sequence in sequences if sequence.tokens[-1] in ends]
    assert ended
    assert all(sequence.stop_reason == "stop" for sequence in ended)


def test_an_empty_stop_stops_nothing(client: tinker.ServiceClient) -> None:
    """Would catch end tokens that cannot be switched off."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    sampling = types.SamplingParams(max_tokens=60, temperature=1.5, stop=[], seed=3)
    sequences = sampler.sample(PROMPT, 64, sampling).result().sequences
    assert {(len(sequence.tokens), sequence.stop_reason) for sequence in sequences} == {(60, "length")}


def test_top_k_of_one_is_greedy(client: tinker.ServiceClient) -> None:
    """Would catch top_k being dropped on the way."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    best = sampler.sample(PROMPT, 1, greedy(6)).result().sequences[0].tokens
    narrowed = types.SamplingParams(max_tokens=6, temperature=1.0, top_k=1, stop=[], seed=5)
    assert list(sampler.sample(PROMPT, 1, narrowed).result().sequences[0].tokens) == list(best)


def test_top_k_sample_logprobs_hold_what_was_sampled(client: tinker.ServiceClient) -> None:
    """Would catch candidates of a neighboring position or sequence, or lost on the way."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    response = sampler.sample(PROMPT, 2, greedy(6), topk_sample_logprobs=3).result()
    for sequence in response.sequences:
        assert sequence.topk_logprobs is not None
        assert sequence.logprobs is not None
        assert len(sequence.topk_logprobs) == 6
        for token, logprob, candidates in zip(sequence.tokens, sequence.logprobs, sequence.topk_logprobs, strict=True):
            assert candidates is not None
            assert len(candidates) == 3
            assert candidates[0][0] == token
            assert candidates[0][1] == pytest.approx(logprob, abs=1e-6)
            assert [score for _, score in candidates] == sorted((score for _, score in candidates), reverse=True)
    assert sampler.sample(PROMPT, 1, greedy(2)).result().sequences[0].topk_logprobs is None


def test_training_and_sampling_at_once(client: tinker.ServiceClient) -> None:
    """Would catch one of the two waiting for the other to run dry."""
    trainer = new_trainer(client)
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    samples = [sampler.sample(PROMPT, 2, greedy(20)) for _ in range(8)]
    losses = train(trainer, 4)
    assert all(math.isfinite(loss) for loss in losses)
    assert all(len(one.result().sequences) == 2 for one in samples)


def test_runs_checkpoints_and_sessions_are_listed(host: Host, client: tinker.ServiceClient) -> None:
    """Would catch REST answers the SDK cannot parse, or that miss what was made."""
    trainer = client.create_lora_training_client(
        base_model=BASE_MODEL, rank=4, user_metadata={"renderer_name": "role_colon"}
    ).result()
    state = trainer.save_state("kept", ttl_seconds=7200, user_metadata={"step": "3"}).result().path
    weights = trainer.save_weights_for_sampler("shown").result().path
    rest = tinker.RestClient(base_url=host.url, api_key=KEY)
    run = rest.get_training_run_by_tinker_path(state).result()
    assert (run.training_run_id, run.lora_rank) == (trainer.model_id, 4)
    assert run.user_metadata == {"renderer_name": "role_colon"}
    assert run.last_checkpoint is not None
    assert run.last_checkpoint.tinker_path == state
    assert run.last_sampler_checkpoint is not None
    assert run.last_sampler_checkpoint.tinker_path == weights
    page = rest.list_training_runs(limit=1).result()
    assert page.training_runs[0].training_run_id == trainer.model_id
    info = rest.get_weights_info_by_tinker_path(weights).result()
    assert (info.base_model, info.lora_rank) == (BASE_MODEL, 4)
    listed = {one.tinker_path: one for one in rest.list_checkpoints(trainer.model_id).result().checkpoints}
    assert set(listed) == {state, weights}
    assert listed[state].user_metadata == {"step": "3"}
    assert listed[state].expires_at is not None
    assert listed[state].size_bytes
    rest.set_checkpoint_ttl_from_tinker_path(state, None).result()
    rest.delete_checkpoint_from_tinker_path(weights).result()
    left = rest.list_user_checkpoints().result().checkpoints
    assert weights not in [one.tinker_path for one in left]
    assert next(one for one in left if one.tinker_path == state).expires_at is None
    session_id = str(trainer.model_id).split(":")[0]
    assert session_id in rest.list_sessions().result().sessions
    assert rest.get_session(session_id).result().training_run_ids == [trainer.model_id]


def test_a_run_learns_how_long_a_sequence_the_service_takes(host: Host) -> None:
    """Catches a limit that a run hears of only when a step is refused."""

    async def ask() -> list[int | None]:
        service = await connect_to(host.url, KEY)()
        answers = [await service.context_tokens(name) for name in (BASE_MODEL, "someone/else")]
        await service.close("success")
        return answers

    [info] = host.service.requests.base_models
    assert asyncio.run(ask()) == [info.max_context_tokens, None]
