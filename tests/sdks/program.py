"""Makes every call that the SDK of this process has, and prints what came of it: `program.py URL`.

It runs under any SDK from 0.16 on, and imports nothing of ours. Calls that came later, or that are gone, are left out
where the SDK lacks them.
"""

import io
import json
import sys
import tarfile
import urllib.request
from typing import Any

import tinker
import torch
from tinker import types

BASE_MODEL = "cookhouse/tiny"
PROMPT = types.ModelInput.from_ints([3, 17, 4, 9])
ADAM = types.AdamParams(learning_rate=1e-2, beta1=0.9, beta2=0.95, eps=1e-8)
MANY = 1026
"""Datums that an SDK sends in two requests."""


def main(url: str) -> None:
    service = tinker.ServiceClient(base_url=url, api_key="tml-test-key-0001", user_metadata={"made": "by a test"})
    rest = service.create_rest_client()
    found: dict[str, Any] = {"version": tinker.__version__}
    found["models"] = [model.model_name for model in service.get_server_capabilities().supported_models]
    trainer = service.create_lora_training_client(BASE_MODEL, rank=8, seed=1, user_metadata={"of": "a run"})
    found["info"] = (trainer.get_info().model_data.model_name, trainer.get_info().lora_rank)
    found["vocabulary"] = trainer.get_tokenizer().vocab_size
    found["losses"] = {name: train(trainer, name, inputs) for name, inputs in losses().items()}
    found["many"] = of_pass(trainer.forward([datum([5, 6, 7])] * MANY, "cross_entropy"))[0]
    found["custom"] = of_pass(trainer.forward_backward_custom(DATA, squares))
    step(trainer)

    state = trainer.save_state("state").result().path
    weights = trainer.save_weights_for_sampler("weights", ttl_seconds=3600).result().path
    found["paths"] = [path.partition("/")[2].split("/", 2)[2] for path in (state, weights)]
    found["named"] = of_sampler(service.create_sampling_client(model_path=weights))
    found["unnamed"] = of_sampler(trainer.save_weights_and_get_sampling_client())
    found["base"] = of_sampler(service.create_sampling_client(base_model=BASE_MODEL))

    resumed = service.create_training_client_from_state_with_optimizer(state)
    found["resumed"] = train(resumed, "cross_entropy", losses()["cross_entropy"])
    reset = service.create_training_client_from_state(state)
    found["reset"] = train(reset, "cross_entropy", losses()["cross_entropy"])
    fresh = service.create_lora_training_client(BASE_MODEL, rank=8, seed=2)
    fresh.load_state_with_optimizer(state).result()
    found["loaded"] = train(fresh, "cross_entropy", losses()["cross_entropy"])
    fresh.save_state("after").result()

    found["session"] = trainer.model_id.partition(":")[0]
    found["rest"] = of_rest(rest, trainer.model_id, state, weights)
    found["later"] = of_later(rest, trainer)
    sys.stdout.write(json.dumps(found))


def datum(tokens: list[int], **inputs: Any) -> types.Datum:
    """Predict each token from those before it."""
    weights = types.TensorData(data=[1.0] * (len(tokens) - 1), dtype="float32", shape=[len(tokens) - 1])
    inputs = inputs or {"weights": weights}
    targets = types.TensorData(data=tokens[1:], dtype="int64", shape=[len(tokens) - 1])
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": targets, **inputs}
    )


def numbers(*values: float) -> types.TensorData:
    return types.TensorData(data=list(values), dtype="float32", shape=[len(values)])


DATA = [datum([3, 17, 4, 9, 22, 11]), datum([5, 6, 7, 8])]


def losses() -> dict[str, list[types.Datum]]:
    """Data for each loss; `wide` has two targets at each position, most of weight 0, which newer SDKs send as CSR."""
    sampled = [
        datum([3, 17, 4, 9], logprobs=numbers(-1.5, -2.25, -0.1), advantages=numbers(1.0, -0.5, 0.3)),
        datum([5, 6, 7], logprobs=numbers(-3.0, -0.7), advantages=numbers(0.2, 0.9)),
    ]
    targets, weights = torch.zeros(6, 3, dtype=torch.int64), torch.zeros(6, 3)
    targets[2, 1], weights[2, 1] = 9, 0.75
    inputs: Any = {"target_tokens": targets, "weights": weights}
    wide = types.Datum(model_input=types.ModelInput.from_ints([3, 17, 4, 9, 22, 11]), loss_fn_inputs=inputs)
    names = ("importance_sampling", "ppo", "cispo", "dro")
    return {"cross_entropy": DATA, "wide": [wide], **dict.fromkeys(names, sampled)}


def train(trainer: tinker.TrainingClient, name: str, data: list[types.Datum]) -> list[Any]:
    loss: Any = "cross_entropy" if name == "wide" else name
    config = {"beta": 0.05} if loss == "dro" else None
    scored = of_pass(trainer.forward(data, loss, loss_fn_config=config))
    passed = of_pass(trainer.forward_backward(data, loss, loss_fn_config=config))
    return [scored, passed, step(trainer)]


def of_pass(future: Any) -> list[Any]:
    output = future.result()
    logprobs = [[fields["logprobs"].data, fields["logprobs"].shape] for fields in output.loss_fn_outputs]
    # Of a custom loss newer SDKs give the function's own value as the loss, and what was computed under this name.
    return [output.metrics.get("surrogate_loss:sum", output.metrics["loss:sum"]), logprobs]


def step(trainer: tinker.TrainingClient) -> float:
    metrics = trainer.optim_step(ADAM).result().metrics
    assert metrics is not None
    return metrics["grad_norm"]


def squares(data: list[types.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
    assert len(data) == len(logprobs)
    return torch.cat(logprobs).square().sum(), {}


def of_sampler(sampler: tinker.SamplingClient) -> list[Any]:
    params = types.SamplingParams(max_tokens=8, temperature=0.7, seed=7, stop=[])
    sampled = sampler.sample(
        PROMPT, num_samples=2, sampling_params=params, include_prompt_logprobs=True, topk_prompt_logprobs=3
    ).result()
    greedy = sampler.sample(PROMPT, num_samples=1, sampling_params=types.SamplingParams(max_tokens=4)).result()
    return [
        [[one.stop_reason, list(one.tokens), one.logprobs] for one in sampled.sequences],
        sampled.prompt_logprobs,
        sampled.topk_prompt_logprobs,
        sampler.compute_logprobs(PROMPT).result(),
        len(greedy.sequences),
        sampler.get_base_model(),
    ]


def of_rest(rest: Any, run_id: str, state: str, weights: str) -> dict[str, Any]:
    run = rest.get_training_run(run_id).result()
    info = rest.get_weights_info_by_tinker_path(state).result()
    rest.set_checkpoint_ttl_from_tinker_path(state, 7200).result()
    rest.publish_checkpoint_from_tinker_path(state).result()
    public = {one.tinker_path: one.public for one in rest.list_checkpoints(run_id).result().checkpoints}
    rest.unpublish_checkpoint_from_tinker_path(state).result()
    listed = rest.list_checkpoints(run_id).result().checkpoints
    sessions = rest.list_sessions().result().sessions
    session = rest.get_session(run_id.partition(":")[0]).result()
    sampler = rest.get_sampler(session.sampler_ids[0]).result()
    runs = rest.list_training_runs(limit=3).result()
    found = {
        "run": [run.base_model, run.lora_rank, run.is_lora, run.user_metadata],
        "by_path": rest.get_training_run_by_tinker_path(state).result().training_run_id == run_id,
        "info": [info.base_model, info.lora_rank, info.is_lora],
        "public": [public[state], public[weights]],
        "listed": sorted([one.checkpoint_type, one.checkpoint_id, one.public, one.size_bytes] for one in listed),
        "expires": all(one.expires_at is not None for one in listed),
        "session": [run_id.partition(":")[0] in sessions, len(session.training_run_ids), len(session.sampler_ids)],
        "sampler": sampler.base_model,
        "runs": len(runs.training_runs),
        "of_all": weights in [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints],
    }
    rest.delete_checkpoint_from_tinker_path(weights).result()
    found["left"] = [one.checkpoint_id for one in rest.list_checkpoints(run_id).result().checkpoints]
    return found


def of_later(rest: Any, trainer: Any) -> dict[str, Any]:
    """Calls that some SDKs lack."""
    found: dict[str, Any] = {}
    if hasattr(rest, "assign_session_project"):
        rest.assign_session_project(trainer.model_id.partition(":")[0], "a-project").result()
        found["assigned"] = True
    if hasattr(trainer, "save_weights_external"):
        path = trainer.save_weights_external("files").result().path
        found["files"] = sorted(rest.get_external_weights_urls(path).result().urls)
    if hasattr(rest, "get_checkpoint_archive_url_from_tinker_path"):
        path = trainer.save_weights_for_sampler("archived").result().path
        found["archive"] = files_of(rest.get_checkpoint_archive_url_from_tinker_path(path).result().url)
    if hasattr(rest, "export_session_trace"):
        found["trace"] = rest.export_session_trace(trainer.model_id.partition(":")[0]).result().startswith("http")
    if hasattr(rest, "search_sessions"):
        found["sessions"] = len(rest.search_sessions(types.SessionSearchRequest(limit=5)).result().sessions) > 0
    if hasattr(rest, "copy_weights"):
        path = trainer.save_state("copied").result().path
        found["copy"] = rest.copy_weights(path, destination_project_id="other").result() != path
    return found


def files_of(url: str) -> list[str]:
    """Names of the files of a checkpoint's archive."""
    with urllib.request.urlopen(url) as answer, tarfile.open(fileobj=io.BytesIO(answer.read())) as archive:
        return sorted(name for name in archive.getnames() if name.startswith("adapter"))


if __name__ == "__main__":
    main(sys.argv[1])
