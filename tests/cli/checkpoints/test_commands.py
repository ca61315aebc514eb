"""`cookhouse checkpoints` over folders that a real server wrote, and a real server over what it imports."""

import json
import shutil
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
import torch
from safetensors.torch import load_file
from tests.cli.checkpoints.conftest import Run, connected, logprobs_of
from tests.contract.calls import DATA
from tests.contract.conftest import make_torch_engine
from tests.server.hosting import KEY, hosted
from transformers import AutoModelForCausalLM, AutoTokenizer

from cookhouse.blobs import FsspecBlobStore
from cookhouse.cli import main
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.store import Store


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["checkpoints", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_list_shows_what_a_run_recorded(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", run.folder) == 0
    heading, sampler, state = cells(capsys.readouterr().out)
    assert heading == ["checkpoint", "step", "kind", "rank", "size", "saved"]
    assert sampler[:4] == [run.sampler_path, "2", "sampler", "8"]
    assert state[:4] == [run.state_path, "2", "state", "8"]
    assert float(state[4]) > 2.5 * float(sampler[4]) > 0


def test_list_shows_what_a_server_keeps(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", run.folder / "service") == 0
    shown = {line[0]: line[1:4] for line in cells(capsys.readouterr().out)}
    assert shown[run.external_path] == ["-", "external", "8"]
    assert shown[run.state_path] == ["-", "state", "8"]


def test_list_shows_checkpoints_on_another_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a run on a hosted service that cannot be listed, and an export that reads a folder at random."""
    line = {"name": "n", "epoch": 0, "batch": 2, "step": 7, "final": True, "sampler_path": None}
    (tmp_path / "checkpoints.jsonl").write_text(json.dumps({**line, "state_path": "tinker://far/weights/n"}) + "\n")
    assert call("list", tmp_path) == 0
    assert cells(capsys.readouterr().out)[1] == ["tinker://far/weights/n", "7", "-", "-", "-", "-"]
    assert call("export", tmp_path, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "is on the service that the run was trained on" in said
    assert "tinker checkpoint download tinker://far/weights/n" in said
    assert not (tmp_path / "out").exists()


def test_info_says_what_a_checkpoint_holds(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("info", run.state_path, "--run", run.folder) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (facts["path"], facts["step"], facts["kind"], facts["expires"]) == (run.state_path, "2", "state", "never")
    assert (facts["rank"], facts["trained"], facts["optimizer"]) == ("8", "attention, MLP, output", "after 2 steps")
    assert "cookhouse/tiny" in facts["base"]
    assert call("info", facts["folder"]) == 0
    assert "path" not in [line[0] for line in cells(capsys.readouterr().out)]
    assert call("info", run.sampler_path, "--state-dir", run.folder / "service") == 0
    assert ["optimizer", "none"] in cells(capsys.readouterr().out)


def test_an_export_calls_the_base_model_as_it_was_served(tmp_path: Path) -> None:
    """Would catch the folder that the base model has on the server's machine: of no use elsewhere, and told to all."""
    sources = {"kitchen/base": "cookhouse/tiny"}
    with (
        hosted(tmp_path, make_torch_engine, sources=sources) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = client.create_lora_training_client("kitchen/base", rank=2).result()
        state, external = trainer.save_state("a").result(), trainer.save_weights_external("b").result()
        links = tinker.RestClient(base_url=host.url, api_key=KEY).get_external_weights_urls(external.path).result().urls
        downloaded = httpx.get(links["adapter_config.json"], trust_env=False).json()
    assert call("export", state.path, tmp_path / "peft", "--state-dir", tmp_path) == 0
    exported = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    for config in (downloaded, exported):
        assert config["base_model_name_or_path"] == "kitchen/base"
    assert 'base_model: "kitchen/base"' in (tmp_path / "peft" / "README.md").read_text()


def test_an_imported_export_trains_on_as_if_never_gone(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way out and back: exported by name of the run, imported into a new server's state, loaded by the SDK."""
    assert call("export", run.folder, tmp_path / "peft") == 0
    assert "peft.PeftModel.from_pretrained(" in capsys.readouterr().out
    card = (tmp_path / "peft" / "README.md").read_text()
    assert 'base_model: "cookhouse/tiny"' in card
    assert "- optimizer steps: `2`" in card
    state_dir = tmp_path / "new" / "state"
    assert call("import", tmp_path / "peft", "--state-dir", state_dir, "--name", "start", "--api-key", KEY) == 0
    out = capsys.readouterr().out
    path = out.split()[0]
    assert path.endswith(":train:0/weights/start")
    assert f"load_checkpoint_path={path}" in out
    assert f"--state-dir {state_dir}" in out
    assert [one.name for one in state_dir.iterdir() if one.name.startswith(".import")] == []
    with connected(state_dir) as (host, client):
        trainer = client.create_training_client_from_state(path).result()
        assert logprobs_of(trainer) == run.logprobs
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        assert rest.get_training_run_by_tinker_path(path).result().lora_rank == 8
        with pytest.raises(tinker.TinkerError, match="has weights only"):
            client.create_training_client_from_state_with_optimizer(path).result()


def test_what_a_server_put_aside_is_imported_with_its_optimizer(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch checkpoints that a lost database leaves on the disk, and nobody can use."""
    state_dir = tmp_path / "service"
    shutil.copytree(run.folder / "service", state_dir)
    (state_dir / "server.db").unlink()
    with closing(Store(state_dir / "server.db")) as store:
        Checkpoints(state_dir / "checkpoints", store)
    (aside,) = [path for path in (state_dir / "checkpoints-put-aside").iterdir() if _has_optimizer(path)]
    assert call("import", aside, "--state-dir", state_dir, "--name", "back", "--api-key", KEY) == 0
    path = capsys.readouterr().out.split()[0]
    assert aside.is_dir()
    with connected(state_dir) as (_, client):
        assert logprobs_of(client.create_training_client_from_state_with_optimizer(path).result()) == run.logprobs


def _has_optimizer(folder: Path) -> bool:
    manifest = folder / "adapter.json"
    return manifest.is_file() and json.loads(manifest.read_text())["num_steps"] > 0


def test_damage_is_told_before_it_is_exported(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a flipped bit in a model that is given away."""
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    for file in (folder / "service" / "checkpoints").rglob("adapter.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    assert call("export", run.state_path, tmp_path / "out", "--run", folder) == 2
    assert "adapter.safetensors has changed since it was saved: its SHA-256 is " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_merged_export_is_a_model(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--run", run.folder, "--format", "merged", "--precision", "bfloat16")
    assert call("export", run.sampler_path, tmp_path / "merged", *arguments) == 0
    assert "AutoModelForCausalLM.from_pretrained(" in capsys.readouterr().out
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "merged").config.tie_word_embeddings is False
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template
    assert "lm_head.weight" in load_file(tmp_path / "merged" / "model.safetensors")


def test_a_registered_model_is_exported_with_what_its_run_was(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a name of weights that is looked up as that of a run once more, for the model card."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COOKHOUSE_REGISTRY", raising=False)
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    (folder / "config.json").write_text(json.dumps({"recipe": "supervised", "config": {"renderer_name": "role_colon"}}))
    new = NewModel(
        name="sums",
        base_model="cookhouse/tiny",
        artifact=Artifact(path=run.state_path),
        run_folder=str(folder),
    )
    open_registry(None, {}).register(new)
    assert call("export", "sums@1", "out") == 0, capsys.readouterr().err
    assert "recipe: `supervised`" in Path("out/README.md").read_text()


def test_an_export_goes_to_a_blob_store(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("export", run.folder, "memory://exports/mine") == 0
    keys = FsspecBlobStore("memory://exports/mine").list()
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= set(keys)
    assert capsys.readouterr().out == f"wrote memory://exports/mine (0.9 MB, {len(keys)} files)\n"
    assert call("export", run.folder, "memory://exports/mine", "--format", "merged") == 2  # as a folder that is there
    assert "memory://exports/mine holds files; choose another place" in capsys.readouterr().err


def test_what_is_not_there_is_told_in_a_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where nobody has run anything
    near = run.state_path.replace("000002", "000003")
    (tmp_path / "there").mkdir()
    for arguments, message in (
        (("info", near, "--run", run.folder), f"did you mean {run.state_path}"),
        (("info", "tinker://x/weights/y", "--state-dir", tmp_path), "neither the folder of a run nor the state folder"),
        (("info", tmp_path / "nothing"), "unknown weights"),
        (("info", tmp_path / "there"), "neither a checkpoint's folder nor a run's"),
        (("list", tmp_path / "nothing"), "there is no run"),
        (("list", tmp_path / "there"), "neither the folder of a run nor the state folder"),
        (("export", run.folder, tmp_path / "there"), "exists; choose another folder"),
        (("export", run.folder, "s4://bucket"), "unknown scheme of a blob store 's4'; did you mean s3"),
        (
            ("export", run.external_path, tmp_path / "o", "--run", run.folder / "service"),
            "as other programs read it. peft loads it where",
        ),
        (("export", run.folder, tmp_path / "o", "--format", "gguf"), "'gguf' is not one of 'peft', 'merged'"),
        (("import", tmp_path / "nothing", "--state-dir", tmp_path / "state"), "holds no readable PEFT adapter"),
    ):
        assert call(*arguments) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ")
        assert message in error
    assert not (tmp_path / "o").exists()


def test_a_path_without_a_place_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert call("info", "tinker://x/weights/y") == 2
    assert "name its run with --run, or its server's folder with --state-dir" in capsys.readouterr().err


def test_the_group_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("list", "info", "export", "import"))


@pytest.mark.parametrize("form", ["peft", "merged"])
def test_the_printed_lines_load_what_was_trained(
    form: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch lines that load the base model in its own bfloat16: logprobs are then a tenth off."""
    wide = ("--precision", "float32") if form == "merged" else ()
    assert call("export", run.folder, tmp_path / "out", "--format", form, *wide) == 0
    lines = capsys.readouterr().out.splitlines()
    code = [line.strip() for line in lines if line.startswith("  ")]
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's of adapters over a shared output projection
        exec("\n".join(code), found)
    assert {parameter.dtype for parameter in found["model"].parameters()} == {torch.float32}
    for datum, logprobs in zip(DATA, run.logprobs, strict=True):
        tokens = torch.tensor([datum.model_input.to_ints()])
        targets = torch.tensor(datum.loss_fn_inputs["target_tokens"].to_numpy())
        with torch.no_grad():
            scores = found["model"](tokens).logits[0].log_softmax(-1)
        there = scores[torch.arange(len(targets)), targets]
        # float32 rounds at 1e-7 of logits near 20, over a few hundred additions
        assert torch.allclose(there, torch.tensor(logprobs), atol=1e-4, rtol=0)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


@pytest.mark.parametrize(
    ("form", "note"), [("peft", "note: vLLM refuses an adapter on lm_head"), ("merged", "note: the output projection")]
)
def test_an_export_says_what_its_output_projection_means_elsewhere(
    form: str, note: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a merged model that is larger than its base, or an adapter that a server refuses, without a word."""
    assert call("export", run.folder, tmp_path / "out", "--format", form) == 0
    said = capsys.readouterr()
    assert [line[: len(note)] for line in said.err.splitlines() if line.startswith("note: ")] == [note]
    assert ("dtype='bfloat16'" in said.out) is (form == "merged")


@pytest.mark.parametrize("form", ["peft", "merged"])
def test_an_export_is_as_readable_as_other_files_here(form: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    usual = (tmp_path / "other").stat().st_mode
    assert call("export", run.folder, tmp_path / "out", "--format", form) == 0
    assert {
        file.name: file.stat().st_mode for file in (tmp_path / "out").iterdir() if file.stat().st_mode != usual
    } == {}
