"""Conversations that say nearly the same."""

from cookhouse.data.rows.conversations import conversations_from_rows
from cookhouse.data.rows.duplicates import duplicate_remarks

ANSWER = "Good morning, your parcel leaves our store today and will be with you before the end of the week"


def test_near_duplicates_are_counted_with_the_first_of_them() -> None:
    """Catches a file of canned replies, or a held-out one, of which nobody hears that it repeats what is trained on."""
    rows = [
        ("Where is it?", ANSWER),
        ("Can I pay by card?", "Yes, by card or in cash."),
        ("where is it", f"{ANSWER}!!"),
    ]
    train = conversations_from_rows({"prompt": q, "completion": a} for q, a in rows)
    held_out = conversations_from_rows([{"prompt": "Where is it", "completion": f"{ANSWER} ."}])
    assert duplicate_remarks(train, held_out) == [
        "1 of 3 conversations say nearly what an earlier one says; the first is row 3, as row 1",
        "1 of 1 held-out conversations say nearly what one that is trained on says; the first is row 1, as row 1",
    ]
    assert duplicate_remarks(train[:2], []) == []


def test_texts_that_share_most_of_their_words_in_another_order_are_not_the_same() -> None:
    train = conversations_from_rows(
        {"prompt": "Sum?", "completion": f"{first} and {second} are numbers that I like"}
        for first, second in (("one", "two"), ("three", "four"), ("two", "one"))
    )
    assert duplicate_remarks(train, []) == []
