"""What has to agree, through the unmodified SDK, with each engine and in each precision."""

import numpy as np
import pytest
import tinker
import torch
from tests.contract.calls import ADAM, BASE_MODEL, DATA, PROMPT, datum, gradient_norm, greedy, new_trainer, train
from tests.contract.conftest import with_each_engine
from tests.engine.numerics import WAYS, WAYS_OF_SUMS, assert_logprobs_near
from tinker import types

pytestmark = with_each_engine


def test_outputs_come_per_datum_in_order(trainer: tinker.TrainingClient, engine: str) -> None:
    """Would catch results that are packed, padded or reordered on the way back."""
    result = trainer.forward(DATA, "cross_entropy").result()
    logprobs = [np.array(output["logprobs"].data) for output in result.loss_fn_outputs]
    assert [len(one) for one in logprobs] == [5, 3, 4]
    assert result.metrics["loss:sum"] == pytest.approx(-sum(one.sum() for one in logprobs), rel=1e-5)
    for index, one in enumerate(DATA):
        alone = trainer.forward([one], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].data
        assert_logprobs_near(logprobs[index], np.array(alone), WAYS[engine])


def test_targets_may_have_several_candidates_per_position(trainer: tinker.TrainingClient, engine: str) -> None:
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
    narrow_sum = pytest.approx(narrow_result.metrics["loss:sum"], rel=WAYS_OF_SUMS[engine])
    assert wide_result.metrics["loss:sum"] == narrow_sum


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


def test_sampler_and_trainer_give_the_same_logprobs(client: tinker.ServiceClient, engine: str) -> None:
    """Would catch an offset by one, another temperature, or other weights between the two."""
    trainer = new_trainer(client)
    train(trainer, 2)
    tokens = [3, 17, 4, 9, 22, 11]
    trained = trainer.forward([datum(tokens)], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].data
    sampler = trainer.save_weights_and_get_sampling_client().result()
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(tokens)).result()
    assert scored[0] is None
    assert_logprobs_near(np.array(scored[1:], float), np.array(trained), WAYS[engine])


def test_an_untrained_adapter_samples_as_the_base_model(client: tinker.ServiceClient, engine: str) -> None:
    """Would catch an adapter that changes the model before it is trained."""
    base = client.create_sampling_client(base_model=BASE_MODEL).result().compute_logprobs(PROMPT).result()
    adapted = new_trainer(client).save_weights_and_get_sampling_client().result().compute_logprobs(PROMPT).result()
    assert_logprobs_near(np.array(adapted[1:], float), np.array(base[1:], float), WAYS[engine])


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


def test_top_k_prompt_logprobs_rank_each_position(client: tinker.ServiceClient, engine: str) -> None:
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
        assert values[0] >= logprob * (1 + WAYS[engine])


def test_prompt_logprobs_of_a_suffix(client: tinker.ServiceClient, engine: str) -> None:
    """Would catch the whole prompt coming back, which the SDK takes for an old server."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    whole = sampler.compute_logprobs(PROMPT).result()
    result = sampler.sample(PROMPT, 1, greedy(1), include_prompt_logprobs=True, prompt_logprobs_last_n=2).result()
    assert result.prompt_logprobs is not None
    assert result.prompt_logprobs[:2] == [None, None]
    assert_logprobs_near(np.array(result.prompt_logprobs[2:], float), np.array(whole[2:], float), WAYS[engine])


def test_many_samples_at_once(client: tinker.ServiceClient) -> None:
    """Would catch results that are mixed up between concurrent requests, or a poll per result that starves."""
    sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
    prompts = [types.ModelInput.from_ints([5 + index % 20, 7]) for index in range(40)]
    together = [sampler.sample(prompt, 1, greedy(5)) for prompt in prompts]
    tokens = [list(one.result().sequences[0].tokens) for one in together]
    for index in range(3):
        assert list(sampler.sample(prompts[index], 1, greedy(5)).result().sequences[0].tokens) == tokens[index]
    assert tokens[:20] == tokens[20:]
