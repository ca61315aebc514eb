"""`cookhouse models`, as one types it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cookhouse.cli import main
from cookhouse.registry import Descent, ModelStage
from cookhouse.registry.sqlite import SqliteRegistry


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COOKHOUSE_REGISTRY", raising=False)


def call(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["models", *arguments])
    assert caught.value.code == code


def peft(folder: str, base_model: str = "cookhouse/tiny") -> str:
    """A PEFT folder."""
    Path(folder).mkdir()
    (Path(folder) / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base_model}))
    (Path(folder) / "adapter_model.safetensors").write_text(folder)
    return folder


def lineage() -> None:
    """A base model, supervised, preference and reinforcement versions, and a small model distilled from the last."""
    call("register", "sums", peft("sft"), "--metric", "accuracy=0.8", "--metric", "nll=0.5")
    call("register", "sums-dpo", peft("dpo"), "--parent", "sums", "--descent", "dpo_trained_from")
    call("register", "sums", peft("rl"), "--parent", "sums-dpo@1", "--descent", "rl_trained_from", "--metric", "nll=.2")
    call("register", "small", peft("small", "tiny-two"), "--parent", "sums@2", "--descent", "distilled_from")


TREE = """
cookhouse/tiny
└── fine_tuned_from: sums@1  experiment  accuracy 80%
    └── dpo_trained_from: sums-dpo@1  experiment
        └── rl_trained_from: sums@2  production  nll 0.2
            └── distilled_from: small@1  experiment
"""


@pytest.mark.parametrize("which", ["sums@1", "sums-dpo", "sums@production", "small"])
def test_show_draws_the_lineage(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a version that is not drawn, or one in a wrong place, whichever of them is asked about."""
    lineage()
    call("promote", "sums@2", "production")
    shown = SqliteRegistry(Path("runs/registry.db")).get(which).id
    capsys.readouterr()
    call("show", which)
    tree = capsys.readouterr().out.partition("\n\n")[2].split("\n")
    marked = [line for line in tree if line.endswith("  <- this one")]
    assert [f": {shown}  " in line for line in marked] == [True]
    assert "\n".join(["", *(line.removesuffix("  <- this one") for line in tree)]) == TREE


def test_show_draws_what_came_from_a_version_and_not_its_siblings(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    call("register", "other", peft("other"), "--parent", "sums@1")
    for which, is_drawn in (("sums@1", True), ("sums@2", False)):
        capsys.readouterr()
        call("show", which)
        assert ("├── fine_tuned_from: other@1  experiment\n" in capsys.readouterr().out) is is_drawn


def test_promotion_keeps_its_history(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    capsys.readouterr()
    call("promote", "sums@1", "production")
    call("promote", "sums@2", "production")
    assert capsys.readouterr().out == (
        "sums@1: experiment -> production\nsums@2: experiment -> production\nsums@1: production -> archived\n"
    )
    call("show", "sums@1")
    stages = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("stage "))
    assert [part.split(" (")[0].split()[-1] for part in stages.split(", ")] == ["experiment", "production", "archived"]


def test_list_asks_for_stages_and_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    call("promote", "sums@2", "staging")

    def listed(*arguments: str) -> list[str]:
        capsys.readouterr()
        call("list", *arguments)
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]

    assert listed() == ["small@1", "sums@1", "sums@2", "sums-dpo@1"]
    assert listed("sums") == ["sums@1", "sums@2"]
    assert listed("--stage", "staging") == ["sums@2"]
    assert listed("--where", "nll<0.4") == ["sums@2"]
    assert listed("--where", "nll<0.6", "--where", "accuracy>0.7") == ["sums@1"]
    assert listed("sums", "--sort", "nll", "--ascending") == ["sums@2", "sums@1"]
    assert listed("nothing") == []


def test_compare_puts_metrics_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    capsys.readouterr()
    call("compare", "sums@1", "sums@2")
    rows = {line[:13].strip(): line[13:].split() for line in capsys.readouterr().out.splitlines()}
    assert rows["nll"] == ["0.5", "0.2"]
    assert rows["accuracy"] == ["80%", "-"]
    assert rows["descent"] == ["fine_tuned_from", "rl_trained_from"]


def test_changed_and_missing_weights_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    Path("dpo/adapter_model.safetensors").write_text("something else")
    Path("small").rename("away")
    capsys.readouterr()
    for which in ("sums@1", "sums-dpo", "small"):
        call("show", which)
    said = [line.split("   ")[-1] for line in capsys.readouterr().out.splitlines() if line.startswith("weights ")]
    assert [words.split()[0].strip(",") for words in said] == ["intact", "CHANGED", "GONE:"]


def test_delete_asks_and_minds_descendants(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    call("delete", "small", "--yes")
    call("delete", "sums@1", "--yes", "--force")
    capsys.readouterr()
    call("show", "sums-dpo")
    assert "└── sums@1 (deleted)\n    └── dpo_trained_from: sums-dpo@1" in capsys.readouterr().out
    assert Path("sft/adapter_model.safetensors").exists()


def test_a_parent_is_said_later(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    capsys.readouterr()
    call("set-parent", "small", "sums@1", "--descent", "distilled_from")
    call("set-parent", "sums@2")
    assert capsys.readouterr().out == "small@1 distilled_from sums@1\nsums@2 fine_tuned_from cookhouse/tiny\n"


def test_what_is_synthetic_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lineage()
    registry = SqliteRegistry(Path("runs/registry.db"))
    with registry.writing() as versions:
        versions.change(replace(registry.get("sums@1"), is_synthetic=True))
    call("register", "more", peft("more"), "--parent", "sums@1")
    capsys.readouterr()
    call("list", "more")
    assert "more@1  experiment (synthetic)" in capsys.readouterr().out
    call("show", "more")
    out = capsys.readouterr().out
    assert out.startswith("model       more@1   SYNTHETIC: something that no service computed went into it\n")
    assert "fine_tuned_from: more@1  experiment  synthetic" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "sum"], "unknown registered model 'sum'; did you mean sums"),
        (["show", "sums@9"], "unknown registered model 'sums@9'; did you mean sums@"),
        (["show", "sums@prod"], "unknown stage 'prod'; did you mean production?\n"),
        (
            ["show", "sums@staging"],
            "no version of sums is in staging: sums@1 is in experiment, ",
        ),
        (["show", "../x"], "'../x' cannot name a registered model; a name has letters, digits"),
        (["show", "sums", "--registry", "mlfow"], "unknown registry 'mlfow'; did you mean mlflow?"),
        (["promote", "sums@1", "prod"], "unknown stage 'prod'; did you mean production?"),
        (["compare", "sums@1"], "name two models or more to compare"),
        (["list", "--where", "nll"], "'nll' bounds no metric; write a metric, one of >=, <=, >, <, and a number"),
        (["list", "--stage", "prod"], "unknown stage 'prod'; did you mean production?"),
        (["delete", "small"], "deleting small@1 has to be confirmed, and there is no terminal to ask on; add --yes"),
        (["delete", "sums@1", "-y"], "sums-dpo@1 came from sums@1; delete that first, or force it, and they keep"),
        (["set-parent", "sums@1", "small"], "sums@1 cannot come from small@1: lineage would be a cycle (small@1 from "),
        (["set-parent", "sums@1", "sums@1"], "sums@1 cannot come from sums@1: lineage would be a cycle (sums@1)"),
        (["set-parent", "sums@1", "small", "--descent", "rl"], "unknown kind of descent 'rl'; "),
        (["register", "sums", "sft"], "SFT is registered already, as sums@1; promote that, or register other weights"),
        (
            ["register", "other", "nothing"],
            "there is no run 'nothing': no folder of a run has this name",
        ),
        (["register", "other", "bare"], "the base model of bare is unknown; name it with --base-model"),
        (["register", "a/b", "sft"], "'a/b' cannot name a registered model; a name has letters"),
        (["register", "other", "sft", "--metric", "high"], "'high' is no metric; write a name and a number"),
        (["register", "other", "sft", "--metric", "nll=nan"], "nll of a version of other is nan; a metric is a finite"),
        (["register", "other", "sft", "--parent", "none@1"], "unknown registered model 'none'"),
    ],
)
def test_bad_words_give_one_line_and_change_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lineage()
    Path("bare").mkdir()
    Path("bare/weights.bin").touch()
    before = Path("runs/registry.db").read_bytes()
    capsys.readouterr()
    call(*arguments, code=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}".replace("SFT", str(Path("sft").resolve())))
    assert err.count("\n") == 1
    assert Path("runs/registry.db").read_bytes() == before


def test_descents_and_stages_are_those_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a help text that names what is refused, or leaves out what is allowed."""
    call("register", "--help")
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(descent in words for descent in Descent)
    call("promote", "--help")
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(stage in words for stage in ModelStage)
