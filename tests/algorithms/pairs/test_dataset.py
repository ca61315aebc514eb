"""Pairs as tokens: what has weight, what the cut loses, and which batches there are."""

from dataclasses import replace

import pytest
from tests.algorithms.pairs.kit import pairs, renderer, row, rows, text

from cookhouse.algorithms.pairs.dataset import PairDataset, interleaved, render_pairs
from cookhouse.chat import Message
from cookhouse.data import BadRows, PreferenceRow
from cookhouse.errors import BadRowsError, InputError


def test_only_the_answers_have_weight_and_both_follow_one_prompt() -> None:
    (pair,) = render_pairs([row("Which?", "this", "that one")], renderer(), max_length=100)
    for example, answer in ((pair.chosen, " this\n"), (pair.rejected, " that one\n")):
        trained = example.weights_T != 0
        assert text(example.tokens_T[trained]) == answer
        assert text(example.tokens_T[~trained]) == "Human: Which?\nAI:"
        assert set(example.weights_T.tolist()) == {0.0, 1.0}


def test_datums_are_interleaved_and_shifted() -> None:
    (pair,) = pairs(1)
    chosen, rejected = interleaved([pair])
    for datum, example in ((chosen, pair.chosen), (rejected, pair.rejected)):
        assert datum.model_input.to_ints() == example.tokens_T[:-1].tolist()
        assert datum.loss_fn_inputs["target_tokens"].to_numpy().tolist() == example.tokens_T[1:].tolist()
        assert datum.loss_fn_inputs["weights"].to_numpy().tolist() == example.weights_T[1:].tolist()


def test_what_the_cut_leaves_nothing_of_is_left_out_and_no_batch_is_smaller_for_it() -> None:
    # Catches pairs that are dropped while batches are made, so that some have fewer.
    long = row("word " * 60, "this", "that", "pairs.jsonl:9")
    same = row("Which?", "one two three four", "one two three five", "pairs.jsonl:10")
    given = [*rows(3), long, *rows(1), same]
    (whole,) = render_pairs([same], renderer(), max_length=100)
    both = zip(whole.chosen.tokens_T, whole.rejected.tokens_T, strict=False)
    cut = next(index for index, (one, other) in enumerate(both) if one != other)
    dataset = PairDataset(render_pairs(given, renderer(), max_length=cut), batch_size=2)
    assert [len(dataset.get_batch(index)) for index in range(len(dataset))] == [2, 2]
    (note,) = dataset.notes
    assert note.startswith("2 of 6 pairs are left out")
    assert "pairs.jsonl:9, whose chosen answer begins behind" in note
    with pytest.raises(InputError, match=r"no pair to learn from .*whose answers are the same in the \d+ tokens kept"):
        PairDataset(render_pairs([same], renderer(), max_length=cut), batch_size=2)


def test_the_last_batch_holds_the_rest_and_it_is_said() -> None:
    dataset = PairDataset(pairs(5), batch_size=2)
    assert [len(dataset.get_batch(index)) for index in range(3)] == [2, 2, 1]
    assert dataset.notes == ["the last batch of an epoch has 1 of the 5 pairs, not 2"]
    assert PairDataset(pairs(2), batch_size=9).notes == ["batch_size is 9 and there are 2 pairs: they make one batch"]
    with pytest.raises(IndexError):
        dataset.get_batch(3)


def test_the_order_of_an_epoch_hangs_on_the_seed_and_the_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[str]:
        dataset = PairDataset(pairs(8), batch_size=8, seed=seed)
        dataset.set_epoch(3)
        dataset.set_epoch(epoch)
        return [pair.chosen.source for pair in dataset.get_batch(0)]

    assert order(0, 1) == order(0, 1)
    assert order(0, 0) != order(0, 1)
    assert order(1, 0) != order(0, 0)


@pytest.mark.parametrize(
    ("chosen", "rejected", "said"),
    [
        ("yes", "yes", "pairs.jsonl:1: chosen and rejected are the same"),
        (" ", "no", "pairs.jsonl:1: chosen is empty"),
        ("yes", "", "pairs.jsonl:1: rejected is empty"),
    ],
)
def test_a_pair_that_teaches_nothing_is_refused_or_skipped_and_counted(chosen: str, rejected: str, said: str) -> None:
    given = [row("Which?", chosen, rejected), row("Which?", "a", "b")]
    with pytest.raises(BadRowsError, match=said):
        render_pairs(given, renderer(), max_length=100)
    bad = BadRows("skip")
    assert len(render_pairs(given, renderer(), max_length=100, bad=bad)) == 1
    assert bad.count == 1


def test_answers_of_several_turns_need_a_format_that_keeps_them_in_one_sequence() -> None:
    turns = [
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "and then?"},
        {"role": "assistant", "content": "second"},
    ]
    given = PreferenceRow(
        prompt=[{"role": "user", "content": "Which?"}],
        chosen=turns,  # type: ignore[arg-type]
        rejected=[{"role": "assistant", "content": "none"}],
        source="pairs.jsonl:1",
    )
    (pair,) = render_pairs([given], renderer(), max_length=100)
    assert text(pair.chosen.tokens_T[pair.chosen.weights_T != 0]) == " first\n second\n"
    with pytest.raises(BadRowsError, match="chosen has several turns"):
        render_pairs([given], renderer("qwen3"), max_length=100)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5"])
@pytest.mark.parametrize(("chosen", "rejected"), [("<think>hm</think>yes", "no"), ("yes", "hm</think>no")])
def test_of_a_pair_of_which_one_answer_reasons_the_empty_block_is_the_others(
    name: str, chosen: str, rejected: str
) -> None:
    """Would catch a pair that is refused, or an empty block in the prompt of one answer alone."""
    (pair,) = render_pairs([row("Which?", chosen, rejected)], renderer(name), max_length=200)
    prompts = [text(each.tokens_T[each.weights_T == 0]) for each in pair.examples]
    answers = [text(each.tokens_T[each.weights_T != 0]) for each in pair.examples]
    assert prompts[0] == prompts[1]
    assert [("hm" in answer, answer.count("</think>")) for answer in answers] == [
        ("hm" in chosen, 1),
        ("hm" in rejected, 1),
    ]


def test_where_no_answer_reasons_the_empty_block_is_not_trained() -> None:
    (pair,) = render_pairs([row("Which?", "yes", "no")], renderer("qwen3"), max_length=200)
    assert [text(each.tokens_T[each.weights_T != 0]) for each in pair.examples] == ["yes<|im_end|>", "no<|im_end|>"]


def test_an_answer_whose_messages_all_have_weight_0_is_refused() -> None:
    given = row("Which?", "this", "that")
    silent: list[Message] = [{**message, "weight": 0} for message in given.chosen]
    with pytest.raises(BadRowsError, match="every message of chosen has weight 0"):
        render_pairs([replace(given, chosen=silent)], renderer(), max_length=200)
