"""A run of reinforcement learning made by hand, with the files that its loop writes, in words of the embedded model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tinker
from tests.runs.kit import make_run

from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.report import RecordedAnswer
from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition, group_to_json
from cookhouse.runs.reading.rollouts import rollouts_file
from cookhouse.runs.reading.token_values import advantages_file, trained_file
from cookhouse.runs.samples import answers_path, write_answers

END = "<|endoftext|>"


def ids(text: str) -> list[int]:
    """Tokens of the embedded model."""
    return list(get_tokenizer("cookhouse/tiny").encode(text, add_special_tokens=False))


def group(
    question: str, answers: Mapping[str, float], logs: Mapping[str, str] | None = None, *, version: int = 0
) -> TrajectoryGroup:
    """One turn each: an answer with its reward."""
    return TrajectoryGroup(
        trajectories_G=[
            Trajectory(
                transitions=[
                    Transition(
                        observation=tinker.ModelInput.from_ints(ids(f"Human: {question}\nAI:")),
                        action=TokensWithLogprobs(tokens=ids(answer), maybe_logprobs=[-0.5] * len(ids(answer))),
                        reward=reward,
                        episode_done=True,
                        metrics={"correct": reward},
                        logs={"question": question, "answer": answer, **(logs or {})},
                    )
                ],
                final_observation=tinker.ModelInput.empty(),
            )
            for answer, reward in answers.items()
        ],
        group_rewards_G=[0.0] * len(answers),
        group_metrics_G=[{}] * len(answers),
        tags=["sums"],
        version=version,
        seconds=0.25,
    )


def keep_rollouts(run: Path, step: int, groups: Sequence[TrajectoryGroup], *, is_test: bool = False) -> None:
    """The rollouts of a step (0-based), and what it trained them with."""
    path = rollouts_file(run, step, is_test=is_test)
    path.parent.mkdir(exist_ok=True)
    texts = [group_to_json(each) for each in groups]
    if is_test:
        path.write_text("".join(text + "\n" for text in texts))
        return
    path.write_text("".join(f'{{"number":{number},"group":{text}}}\n' for number, text in enumerate(texts)))
    kinds: list[tuple[Path, str, float]] = [
        (advantages_file(run, step), "advantages", 1.0),
        (trained_file(run, step), "logprobs", -0.75),
    ]
    for file, key, value in kinds:
        rows = [
            {
                "step": step,
                "number": number,
                key: [[[value] * len(each.transitions[0].action.tokens)] for each in one.trajectories_G],
            }
            for number, one in enumerate(groups)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (run / "rollouts" / "steps.jsonl").open("a") as record:
        used = [[step, number] for number in range(len(groups))]
        record.write(json.dumps({"step": step, "used": used, "left": [], "next_step": step + 1}) + "\n")


def keep_example(run: Path, step: int, text: str, *, weight: float = 1.0) -> None:
    """An example whose second half is trained on."""
    tokens = ids(text)
    num = len(tokens) - 1
    row = {
        "number": 5,
        "label": "",
        "num_before": 0,
        "num_after": 0,
        "tokens": tokens[:-1],
        "targets": tokens[1:],
        "weights": [0.0] * (num // 2) + [weight] * (num - num // 2),
        "logprobs": [-1.0] * num,
    }
    (run / "examples").mkdir(exist_ok=True)
    (run / "examples" / f"{step:06d}.jsonl").write_text(json.dumps(row) + "\n")


def keep_answers(run: Path, step: int, answers: Mapping[str, tuple[str, bool]]) -> None:
    """Held-out answers of the weights after so many steps, by question."""
    write_answers(
        answers_path(run, step),
        [
            RecordedAnswer(prompt=question, expected="4", answer=answer, is_correct=is_correct)
            for question, (answer, is_correct) in answers.items()
        ],
    )


def make_rl_run(path: Path, *, num_steps: int = 3, **settings: Any) -> Path:
    """A run of `num_steps` steps: from the last one but one on it answers worse."""
    rows = [
        {"step": step, "env/all/reward/total": 0.9 if step < num_steps - 2 else 0.2, "optim/entropy": 1.0 + step / 100}
        for step in range(num_steps)
    ]
    run = make_run(path, recipe="rl", rows=rows, **{"model_name": "cookhouse/tiny", **settings})
    for step in range(num_steps):
        worse = "5" if step >= num_steps - 2 else "4"
        keep_rollouts(
            run,
            step,
            [
                group("What is 2 + 2?", {f" 4{END}": 1.0, f" {worse}\n": float(worse == "4")}, version=step),
                group("What is 3 + 3?", {f" 6{END}": 1.0, " seven": -0.1}, version=step),
            ],
        )
        keep_example(run, step, f"Human: What is 2 + 2?\nAI: 4{END}")
    return run
