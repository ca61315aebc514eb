"""What a run does from its first call to its last, through the unmodified SDK."""

import asyncio
import math

import numpy as np
import pytest
import tinker
import torch
from tests.contract.calls import ADAM, BASE_MODEL, DATA, datum, gradient_norm, new_trainer, train
from tests.engine.numerics import MODEL
from tests.server.fake_engine import END_TOKEN
from tests.server.hosting import KEY, Host
from tinker import types
from transformers import AutoTokenizer

from cookhouse.training import connect_to

PROMPT = types.ModelInput.from_ints([3, 17, 4, 9])


def greedy(num_tokens: int, **options: object) -> types.SamplingParams:
    return types.SamplingParams.model_validate({"max_tokens": num_tokens, "temperature": 0.0, "stop": [], **options})


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


def test_outputs_come_per_datum_in_order(trainer: tinker.TrainingClient) -> None:
    """Would catch results that are packed, padded or reordered on the way back."""
    result = trainer.forward(DATA, "cross_entropy").result()
    logprobs = [np.array(output["logprobs"].data) for output in result.loss_fn_outputs]
    assert [len(one) for one in logprobs] == [5, 3, 4]
    assert result.metrics["loss:sum"] == pytest.approx(-sum(one.sum() for one in logprobs), rel=1e-5)
    for index, one in enumerate(DATA):
        alone = trainer.forward([one], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].data
        assert logprobs[index] == pytest.approx(np.array(alone), abs=1e-4)


def test_targets_may_have_several_candidates_per_position(trainer: tinker.TrainingClient) -> None:
    """Would catch a wire that flattens (N, K) tensors, or reads the SDK's sparse ones wrongly."""
    targets = torch.zeros((4, 12), dtype=torch.int64)
    weights = torch.zeros((4, 12))
    for row, column, token in ((0, 0, 17), (1, 3, 4), (2, 11, 9), (3, 0, 22)):
        targets[row, column], weights[row, column] = token, 1.0
    sparse = {
        "target_tokens": types.TensorData.from_torch_sparse(targets),
        "weights": types.TensorData.from_torch_sparse(weights),
    }
    wide = types.Datum(model_input=PROMPT, loss_fn_inputs=sparse)
    assert wide.loss_fn_inputs["weights"].sparse_crow_indices is not None
    narrow = datum([3, 17, 4, 9, 22])
    wide_result, narrow_result = (trainer.forward([one], "cross_entropy").result() for one in (wide, narrow))
    assert wide_result.loss_fn_outputs[0]["logprobs"].shape == [4, 12]
    assert wide_result.metrics["loss:sum"] == pytest.approx(narrow_result.metrics["loss:sum"], rel=1e-5)


def test_forward_leaves_no_gradient(trainer: tinker.TrainingClient) -> None:
    """Would catch `forward_only` being ignored: evaluation would then train."""
    trainer.forward(DATA, "cross_entropy").result()
    assert gradient_norm(trainer) == 0.0


def test_gradients_add_up_over_calls(trainer: tinker.TrainingClient) -> None:
    """Would catch a second call that replaces the gradient, or a mean instead of a sum."""
    trainer.forward_backward(DATA, "cross_entropy").result()
    once = gradient_norm(trainer)
    for _ in range(2):
        trainer.forward_backward(DATA, "cross_entropy").result()
    assert gradient_norm(trainer) == pytest.approx(2 * once, rel=1e-4)


def test_custom_loss_equals_the_built_in_one(trainer: tinker.TrainingClient) -> None:
    """Would catch a missing loss:sum, or weights that may not be negative or fractional."""

    def cross_entropy(data: list[types.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        weights = [torch.tensor(one.loss_fn_inputs["weights"].data) for one in data]
        return -sum((w * lp).sum() for w, lp in zip(weights, logprobs, strict=True)), {"mine": 1.0}  # type: ignore[return-value]

    data = [datum([3, 17, 4, 9], [0.5, -0.25, 2.0])]
    built_in = trainer.forward_backward(data, "cross_entropy").result().metrics["loss:sum"]
    norm = gradient_norm(trainer)
    custom = trainer.forward_backward_custom(data, cross_entropy).result()
    assert custom.metrics["loss:sum"] == pytest.approx(built_in, rel=1e-5)
    assert custom.metrics["mine"] == 1.0
    assert gradient_norm(trainer) == pytest.approx(norm, rel=1e-4)


def test_equal_seeds_give_equal_runs(client: tinker.ServiceClient) -> None:
    """Would catch anything random, or dependent on timing, between submit and result."""
    assert train(new_trainer(client), 4) == train(new_trainer(client), 4)


def test_resuming_with_the_optimizer_continues_to_the_bit(client: tinker.ServiceClient) -> None:
    """Would catch moments or step count left out of a checkpoint, and an optimizer restored when it should not be."""
    first = new_trainer(client)
    train(first, 3)
    path = first.save_state("middle").result().path
    expected = train(first, 3)
    resumed = client.create_training_client_from_state_with_optimizer(path).result()
    assert train(resumed, 3) == expected
    restarted = client.create_training_client_from_state(path).result()
    losses = train(restarted, 3)
    assert losses[0] == expected[0]
    assert losses[1:] != expected[1:]


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


def test_a_sampler_keeps_its_weights(client: tinker.ServiceClient) -> None:
    """Would catch a sampler that reads the weights under training."""
    trainer = new_trainer(client)
    train(trainer, 2)
    before = trainer.save_weights_and_get_sampling_client().result()
    old = before.compute_logprobs(PROMPT).result()
    train(trainer, 4)
    after = trainer.save_weights_and_get_sampling_client().result()
    assert before.compute_logprobs(PROMPT).result() == old
    assert after.compute_logprobs(PROMPT).result() != old


def test_the_snapshot_is_of_its_place_in_the_order(client: tinker.ServiceClient) -> None:
    """Would catch a snapshot taken when the request arrives, or after training that was submitted behind it."""
    trainer, reference = new_trainer(client), new_trainer(client)
    train(reference, 2)
    expected = reference.save_weights_and_get_sampling_client().result().compute_logprobs(PROMPT).result()
    for _ in range(2):
        trainer.forward_backward(DATA, "cross_entropy")
        trainer.optim_step(ADAM)
    publishing = trainer.save_weights_and_get_sampling_client()
    train(trainer, 2)
    assert publishing.result().compute_logprobs(PROMPT).result() == expected


def test_named_and_unnamed_samplers_agree(client: tinker.ServiceClient) -> None:
    """Would catch weights that change on their way through the disk."""
    trainer = new_trainer(client)
    train(trainer, 2)
    unnamed = trainer.save_weights_and_get_sampling_client().result()
    named = client.create_sampling_client(trainer.save_weights_for_sampler("w1").result().path).result()
    from_state = client.create_sampling_client(trainer.save_state("s1").result().path).result()
    expected = unnamed.compute_logprobs(PROMPT).result()
    assert named.compute_logprobs(PROMPT).result() == expected
    assert from_state.compute_logprobs(PROMPT).result() == expected
    assert named.get_base_model() == BASE_MODEL


def test_sampler_and_trainer_give_the_same_logprobs(client: tinker.ServiceClient) -> None:
    """Would catch an offset by one, another temperature, or other weights between the two."""
    trainer = new_trainer(client)
    train(trainer, 2)
    tokens = [3, 17, 4, 9, 22, 11]
    trained = trainer.forward([datum(tokens)], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].data
    sampler = trainer.save_weights_and_get_sampling_client().result()
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(tokens)).result()
    assert scored[0] is None
    assert scored[1:] == pytest.approx(list(trained), abs=1e-3)


def test_an_untrained_adapter_samples_as_the_base_model(client: tinker.ServiceClient) -> None:
    """Would catch an adapter that changes the model before it is trained."""
    base = client.create_sampling_client(base_model=BASE_MODEL).result().compute_logprobs(PROMPT).result()
    adapted = new_trainer(client).save_weights_and_get_sampling_client().result().compute_logprobs(PROMPT).result()
    assert adapted[1:] == pytest.approx(base[1:], rel=MODEL)


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
    info = next(iter(host.service.base_models))
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
    is_fake = next(iter(host.service.base_models)).architecture == "fake"
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


@pytest.mark.parametrize("is_sparse", [False, True])
def test_target_prompt_logprobs(client: tinker.ServiceClient, is_sparse: bool) -> None:
    """Would catch targets at the wrong position, and an answer in another layout than the request's."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    own = sampler.compute_logprobs(PROMPT).result()[1:]
    cells = torch.full((3, 40), -1, dtype=torch.int64)
    cells[:, 7] = torch.tensor([17, 4, 9])
    cells[1, 0] = 11
    asked = types.TensorData.from_torch_sparse(cells, -1) if is_sparse else types.TensorData.from_torch(cells)
    assert (asked.sparse_crow_indices is not None) == is_sparse
    answer = sampler.sample(PROMPT, 1, greedy(1), target_prompt_logprobs=asked).result().target_prompt_logprobs
    assert answer is not None
    assert answer.sparse_crow_indices == asked.sparse_crow_indices
    scored = answer.to_torch()
    np.testing.assert_allclose(scored[:, 7], np.array(own, np.float32), atol=1e-6)
    assert scored[1, 0] < 0
    assert (scored == 0).sum() == 3 * 40 - 4


def test_top_k_prompt_logprobs_rank_each_position(client: tinker.ServiceClient) -> None:
    """Would catch rows shifted by a position, or unsorted."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    result = sampler.sample(PROMPT, 1, greedy(1), include_prompt_logprobs=True, topk_prompt_logprobs=3).result()
    rows, chosen = result.topk_prompt_logprobs, result.prompt_logprobs
    assert rows is not None
    assert chosen is not None
    assert rows[0] is None
    assert len(rows) == len(chosen) == 4
    best_next = sampler.sample(types.ModelInput.from_ints([3, 17]), 1, greedy(1)).result().sequences[0].tokens[0]
    assert rows[2] is not None
    assert rows[2][0][0] == best_next
    for row, logprob in zip(rows[1:], chosen[1:], strict=True):
        assert row is not None
        values = [value for _, value in row]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert logprob is not None
        assert values[0] >= logprob * (1 + MODEL)


def test_prompt_logprobs_of_a_suffix(client: tinker.ServiceClient) -> None:
    """Would catch the whole prompt coming back, which the SDK takes for an old server."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    whole = sampler.compute_logprobs(PROMPT).result()
    result = sampler.sample(PROMPT, 1, greedy(1), include_prompt_logprobs=True, prompt_logprobs_last_n=2).result()
    assert result.prompt_logprobs is not None
    assert result.prompt_logprobs[:2] == [None, None]
    assert result.prompt_logprobs[2:] == pytest.approx(whole[2:], rel=MODEL)


def test_many_samples_at_once(client: tinker.ServiceClient) -> None:
    """Would catch results that are mixed up between concurrent requests, or a poll per result that starves."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    prompts = [types.ModelInput.from_ints([5 + index % 20, 7]) for index in range(40)]
    together = [sampler.sample(prompt, 1, greedy(5)) for prompt in prompts]
    tokens = [list(one.result().sequences[0].tokens) for one in together]
    for index in range(3):
        assert list(sampler.sample(prompts[index], 1, greedy(5)).result().sequences[0].tokens) == tokens[index]
    assert tokens[:20] == tokens[20:]


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

    [info] = host.service.base_models
    assert asyncio.run(ask()) == [info.max_context_tokens, None]
