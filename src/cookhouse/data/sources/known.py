"""Data sets that people know by name: where they are on the hub, what is held out of them, and their fields as ours.

A set's rows become conversations (`messages`, or `prompt` and `completion`), preferences (`prompt`, `chosen`,
`rejected`) or problems (`prompt` and what it is graded by).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cookhouse.data.sources.parts import HeldOut
from cookhouse.data.sources.store import HubSplit
from cookhouse.data.turns import from_dialog
from cookhouse.errors import InputError

Convert = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""A row of the set in a shape of ours; None leaves it out."""
Kind = Literal["conversations", "preferences", "problems"]
"""Problems are those without a written solution: they are answered and graded, not imitated."""
_TEST_ROWS = 1024
_SHUFFLED = HeldOut(count=_TEST_ROWS, seed=0)
_SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)


@dataclass(frozen=True, kw_only=True)
class KnownSet:
    """One set. Where a split of the hub is held out, `test_rows` says which of its rows."""

    kind: Kind
    train: HubSplit
    test: HubSplit | HeldOut | None = None
    test_rows: HeldOut | None = None
    convert: Convert | None = None
    gather: Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]] | None = None
    """Makes rows of all rows, where one of ours takes several of theirs. Such a set is in memory as a whole."""

    @property
    def test_split(self) -> HubSplit:
        """The split of the hub that is held out, of a set that has one."""
        assert isinstance(self.test, HubSplit)
        return self.test


def _hh(row: Mapping[str, Any]) -> dict[str, Any] | None:
    chosen, rejected = from_dialog(row["chosen"]), from_dialog(row["rejected"])
    # Pairs that differ in other turns are damaged: the answers are not to one question.
    if not chosen or not rejected or chosen[:-1] != rejected[:-1] or chosen == rejected:
        return None
    if chosen[-1]["role"] != "assistant" or rejected[-1]["role"] != "assistant" or len(chosen) < 2:
        return None
    return {"prompt": chosen[:-1], "chosen": chosen[-1:], "rejected": rejected[-1:]}


def _ultrafeedback(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"prompt": row["instruction"], "chosen": row["chosen_response"], "rejected": row["rejected_response"]}


def _helpsteer3(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Below 0 the first response is preferred, above 0 the second; at 0 neither."""
    if row["overall_preference"] == 0:
        return None
    chosen, rejected = row["response1"], row["response2"]
    if row["overall_preference"] > 0:
        chosen, rejected = rejected, chosen
    return {"prompt": row["context"], "chosen": chosen, "rejected": rejected}


def _helpsteer2(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The most helpful response to a prompt against the least helpful, where they are not alike."""
    by_prompt: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_prompt.setdefault(row["prompt"], []).append(row)
    pairs = []
    for prompt, answers in by_prompt.items():
        ranked = sorted(answers, key=lambda answer: -answer["helpfulness"])
        if ranked[0]["helpfulness"] > ranked[-1]["helpfulness"]:
            pairs.append({"prompt": prompt, "chosen": ranked[0]["response"], "rejected": ranked[-1]["response"]})
    return pairs


def _arena(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Two conversations with the same first question, of which one won; ties and pictures are left out."""
    first, second = _texts(row["conversation_a"]), _texts(row["conversation_b"])
    if row["winner"] not in ("model_a", "model_b") or not first or not second or first[0] != second[0]:
        return None
    if min(len(first), len(second)) < 2 or {first[-1]["role"], second[-1]["role"]} != {"assistant"}:
        return None
    chosen, rejected = (first, second) if row["winner"] == "model_a" else (second, first)
    return {"prompt": first[:1], "chosen": chosen[1:], "rejected": rejected[1:]}


def _texts(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The turns, or none where one of them holds more than text."""
    said = []
    for turn in turns:
        content = turn["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if any(part["type"] != "text" for part in parts):
            return []
        said.append({"role": turn["role"], "content": " ".join(part["text"] or "" for part in parts)})
    return said


def _gsm8k(row: Mapping[str, Any]) -> dict[str, Any]:
    _, mark, answer = row["answer"].rpartition("####")
    if not mark:
        raise InputError("the answer has no #### before its number")
    return {"prompt": row["question"], "completion": row["answer"], "answer": answer.strip().replace(",", "")}


def _solved(row: Mapping[str, Any]) -> dict[str, Any]:
    """A problem with a written solution, in which the answer is boxed; MATH-500 has it in a field of its own."""
    return {"prompt": row["problem"], "completion": row["solution"], **_named(row, "answer")}


def _deepmath(row: Mapping[str, Any]) -> dict[str, Any]:
    solution = {"completion": row["r1_solution_1"]} if row.get("r1_solution_1") else {}
    return {"prompt": row["question"], "answer": row["final_answer"], **solution}


def _polaris(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"prompt": row["problem"], "answer": row["answer"]}


def _openthoughts3(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"conversations": row["conversations"], **_named(row, "domain"), **_named(row, "source")}


def _deepcoder(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"prompt": row["problem"], **_named(row, "tests"), **_named(row, "starter_code")}


def _named(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: row[name]} if row.get(name) not in (None, "") else {}


def _preferences(name: str, convert: Convert, test: HubSplit | HeldOut = _SHUFFLED, **more: Any) -> KnownSet:
    return KnownSet(kind="preferences", train=HubSplit(name=name, **more), test=test, convert=convert)


def _split(name: str, split: str, *configs: str) -> HubSplit:
    return HubSplit(name=name, split=split, configs=configs or (None,))


NO_ROBOTS = KnownSet(
    kind="conversations",
    train=_split("HuggingFaceH4/no_robots", "train"),
    test=_split("HuggingFaceH4/no_robots", "test"),
)
TULU3 = KnownSet(kind="conversations", train=_split("allenai/tulu-3-sft-mixture", "train"), test=_SHUFFLED)
OPENTHOUGHTS3 = KnownSet(
    kind="conversations", train=_split("open-thoughts/OpenThoughts3-1.2M", "train"), convert=_openthoughts3
)
HH = KnownSet(
    kind="preferences",
    train=_split("Anthropic/hh-rlhf", "train"),
    test=_split("Anthropic/hh-rlhf", "test"),
    test_rows=_SHUFFLED,
    convert=_hh,
)
ULTRAFEEDBACK = _preferences(
    "argilla/ultrafeedback-binarized-preferences", _ultrafeedback, test=HeldOut(count=_TEST_ROWS)
)
HELPSTEER3 = KnownSet(
    kind="preferences",
    train=_split("nvidia/HelpSteer3", "train", "preference"),
    test=_split("nvidia/HelpSteer3", "validation", "preference"),
    test_rows=_SHUFFLED,
    convert=_helpsteer3,
)
HELPSTEER2 = KnownSet(
    kind="preferences",
    train=_split("nvidia/HelpSteer2", "train"),
    test=_split("nvidia/HelpSteer2", "validation"),
    gather=_helpsteer2,
)
ARENA = _preferences("lmarena-ai/arena-human-preference-140k", _arena)
GSM8K = KnownSet(
    kind="conversations",
    train=_split("openai/gsm8k", "train", "main"),
    test=_split("openai/gsm8k", "test", "main"),
    convert=_gsm8k,
)
MATH500 = KnownSet(kind="conversations", train=_split("HuggingFaceH4/MATH-500", "test"), convert=_solved)
MATH = KnownSet(
    kind="conversations",
    train=_split("EleutherAI/hendrycks_math", "train", *_SUBJECTS),
    test=_split("EleutherAI/hendrycks_math", "test", *_SUBJECTS),
    convert=_solved,
)
DEEPMATH = KnownSet(kind="conversations", train=_split("zwhe99/DeepMath-103K", "train"), convert=_deepmath)
POLARIS = KnownSet(kind="problems", train=_split("POLARIS-Project/Polaris-Dataset-53K", "train"), convert=_polaris)
DEEPCODER = KnownSet(
    kind="problems",
    train=_split("agentica-org/DeepCoder-Preview-Dataset", "train", "primeintellect", "taco", "lcbv5"),
    test=_split("agentica-org/DeepCoder-Preview-Dataset", "test", "codeforces"),
    convert=_deepcoder,
)
HUMANEVAL = KnownSet(kind="problems", train=_split("openai/openai_humaneval", "test"))
IFEVAL = KnownSet(kind="problems", train=_split("google/IFEval", "train"))
MBPP = KnownSet(
    kind="problems",
    train=_split("google-research-datasets/mbpp", "train", "full"),
    test=_split("google-research-datasets/mbpp", "test", "full"),
)
