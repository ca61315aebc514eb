"""The first word of `sample`, `chat` and `eval` names weights: catches a word that the base model is asked."""

from pathlib import Path
from typing import Any

import pytest
from tests.runs.kit import make_run

from cookhouse.cli.main import main


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TINKER_BASE_URL", "TINKER_API_KEY", "COOKHOUSE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["cookhouse"])
    monkeypatch.setattr("cookhouse.cli.sample.program", lambda: "cookhouse")
    for number, name in enumerate(("garden", "score"), start=1):
        make_run(Path("runs") / name, number=number)
    Path("runs/garden/checkpoints.jsonl").touch()  # the other has nothing to sample from


def refusal_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("sample", "What is 2+3?"),
            "error: 'What is 2+3?' names no weights; they come before the prompt: "
            "cookhouse sample garden 'What is 2+3?'\n",
        ),
        (
            ("sample", "What is 2+3?", "-m", "org/a"),
            "they come before the prompt: cookhouse sample org/a 'What is 2+3?'\n",
        ),
        (
            ("sample", "What is 2+3?", "org/a"),
            "they come before the prompt: cookhouse sample org/a 'What is 2+3?'\n",
        ),
        (("sample", "gardn"), "did you mean garden?"),
        (("sample", "hello"), "; a prompt comes second: cookhouse sample garden hello\n"),
        (("chat", "gardn"), "unknown weights 'gardn'; did you mean garden?"),
        (("eval", "gardn"), "unknown weights 'gardn'; did you mean garden?"),
        (("eval", "cookhouse/tiny", "gardn"), "unknown weights 'gardn'; did you mean garden?"),
        (("run", "eval", "weights=gardn"), "unknown weights 'gardn'; did you mean garden?"),
        (("checkpoints", "export", "gardn", "out"), "unknown weights 'gardn'; did you mean garden?"),
        (("checkpoints", "export", "org/a", "out"), "org/a is a base model, or an adapter of the package"),
    ],
)
def test_a_first_word_that_names_no_weights_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal_of(capsys, *words)


def test_without_a_prompt_on_a_terminal_the_command_is_written_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert 'nothing to ask: give a prompt, as in cookhouse sample org/a "a question"' in refusal_of(
        capsys, "sample", "org/a"
    )


def test_evaluation_takes_a_beginning_of_a_name_and_any_name_of_another_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("cookhouse.cli.evaluate.run_recipe", lambda _, layers, *__: seen.append(layers["flag"]))
    from cookhouse.cli.evaluate import eval_command

    command = eval_command()
    given = {"config": None, "dry_run": True, "adapters": None, "verbose": False, "log_level": None, "help_all": False}
    command(settings=["gard", "org/a"], **given)
    command(settings=["any", "openai_base_url=http://x"], **given)
    command(settings=["any"], openai_base_url="http://x", **given)
    assert [layer["weights"] for layer in seen] == ["runs/garden", "any", "any"]
    assert seen[0]["compare_with"] == '["org/a"]'
