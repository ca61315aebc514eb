import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.report import RecordedAnswer
from cookhouse.runs import FolderChoice, FolderSpec, RunFolder, choose_folder, open_folder
from cookhouse.weights.checkpoints import Checkpoint


def spec(path: Path, behavior: str = "raise", **others: Any) -> FolderSpec:
    settings: dict[str, Any] = {
        "path": path,
        "recipe": "supervised",
        "config": {"batch_size": 4, "save_every": 2},
        "seed": 5,
        "behavior": behavior,
        "free_fields": {"save_every"},
    }
    return FolderSpec(**(settings | others))


def opened(of: FolderSpec) -> RunFolder:
    folder = open_folder(of, choose_folder(of))
    folder.close()
    return folder


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(
        name=f"{step:06d}", epoch=0, batch=step, step=step, final=False, state_path="tinker://s", sampler_path=None
    )


def test_new_folder_records_config_revision_and_seed(tmp_path: Path) -> None:
    folder = opened(spec(tmp_path / "a" / "run"))
    record = json.loads((folder.path / "config.json").read_text())
    assert record["config"] == {"batch_size": 4, "save_every": 2}
    assert record["seed"] == 5
    assert {"recipe", "version", "revision"} <= set(record)
    assert folder.resume is None


@pytest.mark.parametrize(
    ("behavior", "message"),
    [("raise", "choose another log_path"), ("ask", "no terminal to ask on"), ("overwrite", "allowed: delete, resume")],
)
def test_folder_of_a_run_is_not_touched_unless_told(tmp_path: Path, behavior: str, message: str) -> None:
    folder = opened(spec(tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    with pytest.raises(InputError, match=message):
        choose_folder(spec(folder.path, behavior))
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_a_run_goes_on_only_with_the_data_it_was_started_with(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("one\ntwo\nthree\n")
    folder = opened(spec(tmp_path / "run", data={"train": rows}))
    again = spec(folder.path, "resume", data={"train": rows})
    assert choose_folder(again) is FolderChoice.RESUME
    rows.write_text("one\nthree\n")
    with pytest.raises(InputError, match=r"rows.jsonl has changed .*: it had 3 lines and has 2; .*line 2. .*restore"):
        choose_folder(again)
    assert choose_folder(spec(folder.path, "delete", data={"train": rows})) is FolderChoice.DELETE
    opened(spec(folder.path, "delete", data={"train": rows})).begin()
    assert opened(again).path == folder.path


def test_a_run_goes_on_only_over_the_weights_it_was_started_with(tmp_path: Path) -> None:
    """Catches a resume over another base model under the same name; also of one that was downloaded after the start."""
    base = tmp_path / "base"
    base.mkdir()
    names = [str(base)]
    folder = opened(spec(tmp_path / "run", base_models=lambda: names))
    assert not (folder.path / "base.json").exists()
    again = spec(folder.path, "resume", base_models=lambda: names)
    (base / "model.safetensors").write_bytes(b"first")
    opened(again)
    assert choose_folder(again) is FolderChoice.RESUME
    (base / "model.safetensors").write_bytes(b"other")
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    with pytest.raises(InputError, match=r"weights of .*base have changed since the run .*: model.safetensors differs"):
        choose_folder(again)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    assert choose_folder(spec(folder.path, "resume")) is FolderChoice.RESUME  # a service elsewhere computes
    (folder.path / "base.json").write_text("[1]")
    with pytest.raises(InputError, match=r"base\.json does not hold what weights were"):
        choose_folder(again)


@pytest.mark.parametrize("content", ["[]", "{", '{"train": {}}', '{"train": {"marks": 3}}'])
def test_fingerprints_that_cannot_be_read_are_refused(tmp_path: Path, content: str) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("one\n")
    folder = opened(spec(tmp_path / "run", data={"train": rows}))
    (folder.path / "data.json").write_text(content)
    with pytest.raises(InputError, match=r"data\.json does not hold fingerprints of data"):
        choose_folder(spec(folder.path, "resume", data={"train": rows}))


def test_user_is_asked(tmp_path: Path) -> None:
    folder = opened(spec(tmp_path / "run"))
    assert choose_folder(spec(folder.path, "ask", ask=lambda _: "delete")) is FolderChoice.DELETE
    with pytest.raises(InputError, match="choose another log_path"):
        choose_folder(spec(folder.path, "ask", ask=lambda _: "raise"))


@pytest.mark.parametrize("behavior", ["delete", "resume"])
def test_folder_that_is_no_run_is_never_deleted_or_resumed(tmp_path: Path, behavior: str) -> None:
    # Catches log_path=~ with behavior delete.
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="holds files but no run"):
        choose_folder(spec(tmp_path, behavior))
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_delete_starts_over(tmp_path: Path) -> None:
    folder = opened(spec(tmp_path / "run"))
    folder.checkpoints.append(checkpoint(2))
    folder.metrics.write_text('{"step": 0}\n')
    again = opened(spec(folder.path, "delete"))
    assert again.resume is None
    assert not again.metrics.exists()


def test_resume_goes_on_after_the_last_checkpoint(tmp_path: Path) -> None:
    folder = opened(spec(tmp_path / "run"))
    folder.checkpoints.append(checkpoint(2))
    folder.metrics.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    again = opened(spec(folder.path, "resume", config={"batch_size": 4, "save_every": 9}))
    assert again.resume == checkpoint(2)
    assert again.metrics.read_text() == '{"step": 0}\n{"step": 1}\n'


def test_resume_of_another_run_is_refused(tmp_path: Path) -> None:
    folder = opened(spec(tmp_path / "run"))
    with pytest.raises(InputError, match=r"batch_size=8, but the run .* was started with 4"):
        choose_folder(spec(folder.path, "resume", config={"batch_size": 8, "save_every": 2}))
    with pytest.raises(InputError, match="holds a run of supervised, not of dpo"):
        choose_folder(spec(folder.path, "resume", recipe="dpo"))


def test_resume_without_a_folder_starts_one(tmp_path: Path) -> None:
    assert opened(spec(tmp_path / "run", "resume")).path.is_dir()


def test_path_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="is a file"):
        choose_folder(spec(tmp_path / "run"))
    with pytest.raises(InputError, match="cannot write"):
        opened(spec(tmp_path / "run" / "below"))


def test_a_place_where_no_folder_can_be_made_is_refused() -> None:
    with pytest.raises(InputError, match="cannot write /proc/runs/mine: No such file or directory; choose another"):
        opened(spec(Path("/proc/runs/mine")))


def test_discard_takes_only_what_this_run_made(tmp_path: Path) -> None:
    folder = opened(spec(tmp_path / "runs" / "a"))
    folder.discard()
    assert not (tmp_path / "runs").exists()

    (tmp_path / "mine").mkdir()
    opened(spec(tmp_path / "mine" / "a")).discard()
    assert (tmp_path / "mine").is_dir()

    trained = opened(spec(tmp_path / "trained"))
    trained.metrics.write_text('{"step": 0}\n')
    trained.discard()
    assert trained.path.exists()

    resumed = opened(spec(trained.path, "resume"))
    resumed.discard()
    assert resumed.path.exists()


def test_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder = opened(spec(tmp_path / "run"))
    answers = [
        RecordedAnswer(prompt="2 + 2?", earlier=(("system", "Add."),), expected="4", answer="vier ⅘", is_correct=False)
    ]
    assert folder.read_answers(7) == []
    folder.write_answers(7, answers)
    assert folder.read_answers(7) == answers


@pytest.mark.parametrize(
    "content", ["[", "3", '[{"prompt": "p"}]', '[{"prompt": 1, "expected": "", "answer": "", "is_correct": true}]']
)
def test_a_file_that_holds_no_answers_is_named(tmp_path: Path, content: str) -> None:
    folder = opened(spec(tmp_path / "run"))
    folder.write_answers(7, [])
    (folder.path / "samples" / "000007.json").write_text(content)
    with pytest.raises(InputError, match=r"samples/000007\.json does not hold answers"):
        folder.read_answers(7)


def test_data_that_was_renamed_with_equal_content_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("one\ntwo\n")

    def of(name: str, behavior: str = "resume", **more: Any) -> FolderSpec:
        config = {"dataset_path": str(tmp_path / name), **more}
        return spec(tmp_path / "run", behavior, config=config, data={"rows": tmp_path / name})

    opened(of("a.jsonl", "raise"))
    (tmp_path / "a.jsonl").rename(tmp_path / "b.jsonl")
    assert choose_folder(of("b.jsonl")) is FolderChoice.RESUME
    (tmp_path / "b.jsonl").write_text("one\nthree\n")
    with pytest.raises(InputError, match=r"b\.jsonl has changed since .* the first that is different is line 2"):
        choose_folder(of("b.jsonl"))
    (tmp_path / "run" / "data.json").unlink()
    with pytest.raises(InputError, match="was started with"):
        choose_folder(of("b.jsonl"))
