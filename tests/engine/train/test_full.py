"""Catches full fine-tuning that is not plain AdamW on all weights, that touches its neighbors, or outgrows memory."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec, SampleRequest
from cookhouse.engine.export import export_merged, export_peft, inspect
from cookhouse.engine.model.pretrained import num_parameters
from cookhouse.engine.train import full_checkpoint, full_runs
from cookhouse.engine.train.full import FullModel
from cookhouse.errors import InputError
from tests.engine.conftest import random_datums
from tests.engine.families import save_family
from tests.engine.numerics import MODEL, assert_logprobs_near, near_sum
from tests.engine.stepping import advance

FULL = LoraSpec(rank=0)
ADAM = AdamStep(learning_rate=1e-3, weight_decay=0.1)


def _full(engine: TorchEngine, model_id: str = "full") -> FullModel:
    model = engine._model(model_id)
    assert isinstance(model, FullModel)
    return model


def _pass(engine: TorchEngine, model_id: str, seed: int) -> ForwardBackwardOutput:
    request = ForwardBackward(model_id=model_id, data_D=random_datums([40, 9, 23], seed), loss_fn="cross_entropy")
    (output,) = engine.forward_backward([request])
    assert isinstance(output, ForwardBackwardOutput)
    return output


def _train(engine: TorchEngine, model_id: str, steps: range) -> list[float]:
    losses = []
    for step in steps:
        losses.append(_pass(engine, model_id, step).metrics["loss:sum"])
        engine.optim_step(model_id, ADAM)
    return losses


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3"])
def test_ten_steps_equal_torch_adamw_on_the_same_model(family: str, tmp_path: Path) -> None:
    """Would catch a parameter without gradient, one counted twice where it is tied, or a step over part of them."""
    folder = save_family(tmp_path, family)
    engine = TorchEngine(precision="float32", budget_tokens=50)
    engine.create_model("full", folder, FULL)
    model = AutoModelForCausalLM.from_pretrained(folder)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for step in range(10):
        output = _pass(engine, "full", step)
        loss = torch.zeros(())
        for datum in random_datums([40, 9, 23], step):
            logits = model(input_ids=torch.from_numpy(datum.tokens_T)[None]).logits[0]
            targets = torch.from_numpy(datum.loss_fn_inputs["target_tokens"])[:, None]
            logprobs = torch.log_softmax(logits, -1).gather(1, targets)[:, 0]
            loss = loss - (logprobs * torch.from_numpy(datum.loss_fn_inputs["weights"])).sum()
        optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(loss)
        assert output.metrics["loss:sum"] == near_sum(float(loss.detach()))
        if step == 0:
            mine = _full(engine).layout.views(_full(engine).gradient)
            largest = max(float(p.grad.abs().max()) for p in parameters.values() if p.grad is not None)
            assert set(mine) == set(parameters)
            for name, parameter in parameters.items():
                expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                torch.testing.assert_close(mine[name].cpu(), expected, rtol=0.0, atol=MODEL * largest)
        engine.optim_step("full", ADAM)
        optimizer.step()


def test_adapters_beside_it_are_the_same_to_the_bit(qwen3_folder: str) -> None:
    """Would catch weights, passes or random state shared with the run that trains all of them."""

    def losses(*, beside: bool) -> list[float]:
        engine = TorchEngine(base_models=[qwen3_folder], precision="float32")
        engine.create_model("adapter", qwen3_folder, LoraSpec(rank=4, seed=1))
        if beside:
            engine.create_model("full", qwen3_folder, FULL)
        values = []
        for step in range(4):
            ids = ["adapter", "full"] if beside else ["adapter"]
            outputs = engine.forward_backward(
                [ForwardBackward(model_id=i, data_D=random_datums([9, 30], step), loss_fn="cross_entropy") for i in ids]
            )
            assert isinstance(outputs[0], ForwardBackwardOutput)
            values.append(outputs[0].metrics["loss:sum"])
            for model_id in ids:
                engine.optim_step(model_id, ADAM)
        return values

    assert losses(beside=True) == losses(beside=False)


def test_a_long_pass_of_a_mixture_comes_out_the_same_to_the_bit(tmp_path: Path) -> None:
    """Would catch rows of tokens that several experts take added up by threads, in an order that varies."""
    engine = TorchEngine(precision="float32")
    engine.create_model("full", save_family(tmp_path / "base", "deepseek_v3"), FULL)
    request = ForwardBackward(model_id="full", data_D=random_datums([300] * 13), loss_fn="cross_entropy")
    gradients = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(4):
            engine.forward_backward([request])
            gradients.append(_full(engine).gradient.clone())
            _full(engine).clear_gradient()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)
    assert gradients[0].any()


def test_save_load_and_continue_equals_never_stopped_to_the_bit(
    qwen3_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a shard, a moment or the step count left out."""
    monkeypatch.setattr(full_checkpoint, "_SHARD_BYTES", 50_000)
    engine = TorchEngine(precision="float32")
    engine.create_model("full", qwen3_folder, FULL)
    first = _train(engine, "full", range(2))
    engine.save_state("full", tmp_path / "s", with_optimizer=True)
    assert len(list((tmp_path / "s").glob("adam_v-*.safetensors"))) > 2
    copy = engine.copy_state("full", with_optimizer=True)
    expected = _train(engine, "full", range(2, 4))
    engine.load_state("full", qwen3_folder, FULL, tmp_path / "s", with_optimizer=True)  # over itself
    assert _train(engine, "full", range(2, 4)) == expected
    _pass(engine, "full", 9)  # whose gradient is not of the state that is loaded
    engine.load_state("full", qwen3_folder, FULL, tmp_path / "s", with_optimizer=True)
    assert not _full(engine).gradient.any()
    assert copy is not None
    copy(tmp_path / "copied")
    engine.delete_model("full")
    engine.load_state("again", qwen3_folder, FULL, tmp_path / "copied", with_optimizer=True)
    assert _train(engine, "again", range(2, 4)) == expected
    engine.load_state("again", qwen3_folder, FULL, tmp_path / "s", with_optimizer=False)
    restarted = _train(engine, "again", range(2, 4))
    assert restarted[0] == expected[0]
    assert restarted[1] != expected[1]
    assert inspect(tmp_path / "s").num_steps == len(first)


def _prompt_request(snapshot_id: str | None, base_model: str, prompt_T: np.ndarray) -> SampleRequest:
    return SampleRequest(
        request_id=f"r{snapshot_id}",
        base_model=base_model,
        snapshot_id=snapshot_id,
        prompt_T=prompt_T,
        max_tokens=8,
        seed=3,
        stop=[],
    )


def _sampled(engine: TorchEngine, request: SampleRequest) -> tuple[np.ndarray, np.ndarray]:
    engine.submit_sample(request)
    while engine.has_samples():
        for output in advance(engine):
            (sequence,) = output.sequences
            return sequence.tokens_T.astype(np.int64), sequence.logprobs_T
    raise AssertionError("no sample finished")


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_a_snapshot_samples_with_the_logprobs_of_training(family: str, tmp_path: Path) -> None:
    """Would catch a snapshot that shares weights with the run or the base model, or is not what was trained."""
    folder = save_family(tmp_path / "base", family)
    engine = TorchEngine(precision="float32")
    engine.create_model("full", folder, FULL)
    _train(engine, "full", range(3))
    engine.snapshot("full", "s")
    prompt_T = np.arange(20, 32)
    before = engine.forward_backward([_scored(prompt_T, *_sampled(engine, _prompt_request("s", folder, prompt_T)))])
    engine.copy_snapshot("s", is_durable=True)(tmp_path / "saved")
    _train(engine, "full", range(3, 5))
    tokens_T, logprobs_T = _sampled(engine, _prompt_request("s", folder, prompt_T))
    (output,) = before
    assert isinstance(output, ForwardBackwardOutput)
    assert_logprobs_near(output.logprobs_D[0][len(prompt_T) - 1 :], logprobs_T)
    engine.delete_snapshot("s")
    assert engine._full_samplers == {}
    engine.load_snapshot("t", folder, FULL, tmp_path / "saved")
    again_T, again_logprobs_T = _sampled(engine, _prompt_request("t", folder, prompt_T))
    assert again_T.tolist() == tokens_T.tolist()
    np.testing.assert_array_equal(again_logprobs_T, logprobs_T)


def _scored(prompt_T: np.ndarray, tokens_T: np.ndarray, _: np.ndarray) -> ForwardBackward:
    whole = np.concatenate([prompt_T, tokens_T])
    datum = random_datums([len(whole) - 1])[0]
    data = type(datum)(tokens_T=whole[:-1], loss_fn_inputs={"target_tokens": whole[1:]})
    return ForwardBackward(model_id="full", data_D=[data], loss_fn="cross_entropy", forward_only=True)


def test_export_gives_a_model_with_the_trained_logits(qwen3_folder: str, tmp_path: Path) -> None:
    """Would catch an export of the base model's weights, or a tied projection that came apart."""
    engine = TorchEngine(precision="float32")
    engine.create_model("full", qwen3_folder, FULL)
    _train(engine, "full", range(2))
    engine.save_state("full", tmp_path / "s", with_optimizer=False)
    expected = _pass(engine, "full", 7).logprobs_D[0]
    export_merged(tmp_path / "s", tmp_path / "merged")
    datum = random_datums([40, 9, 23], 7)[0]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    logits = model(input_ids=torch.from_numpy(datum.tokens_T)[None]).logits[0]
    targets = torch.from_numpy(datum.loss_fn_inputs["target_tokens"])[:, None]
    actual = torch.log_softmax(logits, -1).gather(1, targets)[:, 0].detach().numpy()
    assert_logprobs_near(actual, expected)
    with pytest.raises(InputError, match="merged"):
        export_peft(tmp_path / "s", tmp_path / "p")
    with pytest.raises(InputError, match="merged"):
        engine.save_external("full", tmp_path / "p", base_name="b")


def test_a_refused_or_forward_only_request_leaves_no_gradient(qwen3_folder: str) -> None:
    engine = TorchEngine(precision="float32")
    engine.create_model("full", qwen3_folder, FULL)
    data_D = random_datums([9])
    huge = type(data_D[0])(
        tokens_T=data_D[0].tokens_T,
        loss_fn_inputs={"target_tokens": data_D[0].tokens_T, "weights": np.full(9, 3e38, np.float32)},
    )
    request = ForwardBackward(model_id="full", data_D=[huge], loss_fn="cross_entropy")
    (output,) = engine.forward_backward([request])
    assert isinstance(output, InputError)
    engine.forward_backward(
        [ForwardBackward(model_id="full", data_D=data_D, loss_fn="cross_entropy", forward_only=True)]
    )
    assert _full(engine).gradient.eq(0).all()


def test_one_run_per_base_model_and_only_all_of_it(qwen3_folder: str) -> None:
    engine = TorchEngine(precision="float32")
    engine.create_model("full", qwen3_folder, FULL)
    with pytest.raises(InputError, match=r"another run trains all weights.*rank of at least 1"):
        engine.create_model("second", qwen3_folder, FULL)
    engine.delete_model("full")
    with pytest.raises(InputError, match=r"rank 0 trains all weights.*leave them true"):
        engine.create_model("second", qwen3_folder, LoraSpec(rank=0, train_mlp=False))
    engine.create_model("second", qwen3_folder, FULL)


def test_attention_sinks_are_refused_by_name(tmp_path: Path) -> None:
    """Would catch parameters that silently stay as they are."""
    engine = TorchEngine(precision="float32")
    with pytest.raises(InputError, match=r"layers\.0\.self_attn\.sinks.*rank of at least 1"):
        engine.create_model("full", save_family(tmp_path, "gpt_oss"), FULL)
    assert engine._bases._reserved == {}


@pytest.mark.slow
def test_caches_of_idle_samplers_make_way(qwen3_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a cache of no use that keeps a run out of a GPU, and one dropped under its samples."""
    engine = TorchEngine(precision="float32")
    prompt_T = np.arange(5)
    engine.submit_sample(
        SampleRequest(
            request_id="r", base_model=qwen3_folder, snapshot_id=None, prompt_T=prompt_T, seed=0, max_tokens=9
        )
    )
    engine.step_samples()
    monkeypatch.setattr(engine._budget, "free", lambda: 0)
    monkeypatch.setattr(engine._budget, "check", lambda *_, **__: None)
    engine.create_model("full", qwen3_folder, FULL)
    assert list(engine._samplers) == [qwen3_folder]
    while engine.has_samples():
        engine.step_samples()
    engine.delete_model("full")
    engine.create_model("full", qwen3_folder, FULL)
    assert not engine._samplers


@pytest.mark.slow
def test_memory_is_asked_for_before_it_is_taken(qwen3_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a run that takes the machine's last memory, or a budget of base models that it goes around."""
    size = num_parameters(qwen3_folder)

    def load(*_: object) -> None:
        raise AssertionError("loaded before memory was checked")

    engine = TorchEngine(precision="float32", max_base_bytes=20 * size - 1)
    with monkeypatch.context() as patch:
        patch.setattr(FullModel, "load", load)
        with pytest.raises(InputError, match=r"training all weights of .* takes .* MiB of max_base_bytes .* MiB"):
            engine.create_model("full", qwen3_folder, FULL)
        patch.setattr(engine._budget, "check", _no_memory)
        engine._bases._max_bytes = None
        with pytest.raises(InputError, match="no memory"):
            engine.create_model("full", qwen3_folder, FULL)
    roomy = TorchEngine(base_models=[qwen3_folder], precision="float32", max_base_bytes=23 * size)
    roomy.create_model("full", qwen3_folder, FULL)
    assert list(roomy._bases) == []  # idle, so it made room
    with pytest.raises(InputError, match=r"a snapshot of all weights.*full fine-tuning"):
        roomy.snapshot("full", "s")
    roomy.delete_model("full")
    roomy.load_base_model(qwen3_folder)


@pytest.mark.slow
def test_a_snapshot_asks_for_what_it_takes_while_it_is_read_and_is_forgotten(
    qwen3_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are there twice for a while. Would catch a server that is killed then, and one that counts the caches
    of all snapshots that ever were.
    """
    engine = TorchEngine(precision="float32", device="cpu")
    engine.create_model("full", qwen3_folder, FULL)
    engine.save_state("full", tmp_path / "s", with_optimizer=False)
    engine.delete_model("full")
    before = set(engine._budget._left)
    spare = 2 * 4 * num_parameters(qwen3_folder)
    monkeypatch.setattr(engine._budget, "free", lambda: engine._budget.promised_bytes() + spare - 1)
    with pytest.raises(InputError, match=r"a snapshot of all weights of .* MiB of memory are free"):
        engine.load_snapshot("s", qwen3_folder, FULL, tmp_path / "s")
    assert engine._bases._reserved == {}
    monkeypatch.setattr(engine._budget, "free", lambda: engine._budget.promised_bytes() + spare)
    engine.load_snapshot("s", qwen3_folder, FULL, tmp_path / "s")
    monkeypatch.undo()
    prompt_T = np.arange(5)
    request = SampleRequest(
        request_id="r", base_model=qwen3_folder, snapshot_id="s", prompt_T=prompt_T, seed=0, max_tokens=2
    )
    engine.submit_sample(request)
    assert len(advance(engine)) <= 1
    while engine.has_samples():
        engine.step_samples()
    engine.delete_snapshot("s")
    assert set(engine._budget._left) == before


def _no_memory(*_: object, **__: object) -> None:
    raise InputError("no memory")


def test_bf16_computes_rounded_and_trains_in_fp32(qwen3_folder: str) -> None:
    """Would catch steps smaller than the rounding of bf16 being lost."""
    engine = TorchEngine(precision="bfloat16")
    engine.create_model("full", qwen3_folder, FULL)
    before = _full(engine).params.clone()
    losses = [_pass(engine, "full", 0).metrics["loss:sum"]]
    assert _full(engine).gradient.dtype == torch.float32
    engine.optim_step("full", AdamStep(learning_rate=1e-7))
    assert not torch.equal(_full(engine).params, before)
    for _ in range(5):
        losses.append(_pass(engine, "full", 0).metrics["loss:sum"])
        engine.optim_step("full", AdamStep(learning_rate=1e-2))
    assert losses[-1] < 0.9 * losses[0]


def _damage(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = next(folder.glob(name))
        path.write_bytes(path.read_bytes()[:200])

    return damage


@pytest.mark.parametrize(
    "damage", [_damage("params-*"), _damage("adam_v-*"), lambda f: next(f.glob("adam_m*")).unlink()]
)
def test_damaged_checkpoints_are_refused_and_change_nothing(
    qwen3_folder: str, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    engine = TorchEngine(precision="float32")
    engine.create_model("full", qwen3_folder, FULL)
    engine.save_state("full", tmp_path / "s", with_optimizer=True)
    _train(engine, "full", range(1))
    before = _full(engine).params.clone()
    damage(tmp_path / "s")
    with pytest.raises(InputError, match="checkpoint"):
        engine.load_state("full", qwen3_folder, FULL, tmp_path / "s", with_optimizer=True)
    assert torch.equal(_full(engine).params, before)


def test_a_checkpoint_deleted_while_it_is_read_is_read_to_the_end(
    qwen3_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a run left with half of its weights from a checkpoint and half of its own."""
    engine = TorchEngine(precision="float32")
    engine.create_model("full", qwen3_folder, FULL)
    engine.save_state("full", tmp_path / "s", with_optimizer=True)
    saved = _full(engine).params.clone()
    _train(engine, "full", range(1))
    check = full_checkpoint._check

    def check_and_delete(folder: Path, *rest: Any, **options: Any) -> None:
        check(folder, *rest, **options)
        shutil.rmtree(folder, ignore_errors=True)

    monkeypatch.setattr(full_checkpoint, "_check", check_and_delete)
    engine.load_state("full", qwen3_folder, FULL, tmp_path / "s", with_optimizer=True)
    assert torch.equal(_full(engine).params, saved)
    assert not _full(engine).adam_m.any()


@pytest.mark.slow
def test_a_run_that_could_not_be_loaded_is_not_counted(
    qwen3_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch memory that stays reserved for nobody when there is too little of it, or a disk fails."""
    engine = TorchEngine(precision="float32")
    engine.create_model("full", qwen3_folder, FULL)
    engine.save_state("full", tmp_path / "s", with_optimizer=True)
    engine.delete_model("full")

    def fail(*_: object, **__: object) -> int:
        raise MemoryError

    monkeypatch.setattr(full_runs, "read_full", fail)
    with pytest.raises(MemoryError):
        engine.load_state("again", qwen3_folder, FULL, tmp_path / "s", with_optimizer=True)
    assert engine._bases._reserved == {}
    assert engine._models == {}
