"""Somebody with conversations of their own, who wants a model to chat with, to compare, and to take along."""

import json
import re
from collections.abc import Callable

import pytest
from tests.browser import opened, wider_than_window
from tests.journeys.journey import Journey
from tests.journeys.terminal import CTRL_C, CTRL_D

GOODS = {
    "loaf": 4,
    "roll": 3,
    "bun": 2,
    "cake": 9,
    "tart": 6,
    "scone": 3,
    "pretzel": 2,
    "bagel": 2,
    "muffin": 3,
    "pie": 8,
}
QUESTIONS = ("What does a {} cost?", "How much is a {}?", "What is the price of a {}?", "Tell me the price of one {}.")
SETTINGS = "dataset_path=bakery.jsonl columns=prompt:Customer,completion:Reply on_bad_row=skip"


def conversations() -> str:
    """Rows with columns of their own, two of them with an empty answer, and one without any."""
    rows = [
        {"Customer": asked.format(good), "Reply": f"A {good} costs {price} dollars."}
        for asked in QUESTIONS
        for good, price in GOODS.items()
    ]
    rows[11]["Reply"] = rows[25]["Reply"] = ""
    del rows[31]["Reply"]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_own_conversations(begin: Callable[..., Journey], write_transcripts: bool, subtests: pytest.Subtests) -> None:
    journey = begin("own-conversations", "Own conversations, and a model to chat with", "bakery")
    journey.remark("""Ada has a file of questions from a bakery's customers, with the replies. She wants a model that
        answers such questions, to chat with and to take along. cookhouse is installed, the folder is empty but for her
        file, and she has no GPU and no key.""")
    look_around(journey)
    look_at_the_data(journey)
    train(journey)
    read_the_report(journey, subtests)
    talk(journey)
    compare(journey, subtests)
    measure_and_take_along(journey, subtests)
    journey.check(write=write_transcripts)


def look_around(journey: Journey) -> None:
    journey.heading("Does it run here")
    said = journey.run("cookhouse doctor")
    assert "runs train    on this machine" in said
    said = journey.run("cookhouse --help")
    assert "..." not in said.partition("Commands:")[2]


def look_at_the_data(journey: Journey) -> None:
    journey.heading("Look at the data before training")
    text = conversations()
    journey.write("bakery.jsonl", text, shown="".join(text.splitlines(keepends=True)[:3]) + "…\n")
    journey.remark("40 rows. Their columns have names of their own, and the first attempt is refused with what to set:")
    said = journey.run("cookhouse run supervised dataset_path=bakery.jsonl --dry-run", status=2)
    assert "set columns=prompt:Customer,completion:Reply" in said
    assert len(said.splitlines()) < 12, "one sentence fills the screen"
    journey.remark("With that, one row is left that cannot be used:")
    columns = "columns=prompt:Customer,completion:Reply"
    said = journey.run(f"cookhouse run supervised dataset_path=bakery.jsonl {columns} --dry-run", status=2)
    assert "bakery.jsonl:32" in said
    journey.remark("""That row may stay out. The plan says how many are left out, and that two answers are empty. What
        is trained on is green in the terminal.""")
    said = journey.run(f"cookhouse run supervised {SETTINGS} --dry-run")
    for words in (
        "1 row cannot be used and is left out",
        "have no answer but an empty one",
        "the first is bakery.jsonl:12",
    ):
        assert words in " ".join(said.split())
    journey.remark("Conversations of several turns are in another file, and one of them ends with a question:")
    journey.write(
        "chats.jsonl",
        '{"messages": [{"role": "user", "content": "Good morning!"}, {"role": "assistant", "content": "Hello!"}]}\n'
        '{"messages": [{"role": "user", "content": "Are you open?"}, {"role": "assistant", "content": "Yes."}, '
        '{"role": "user", "content": "Until when?"}]}\n',
    )
    said = journey.run("cookhouse run supervised dataset_path=chats.jsonl --dry-run | grep note")
    assert "1 of 2 conversations end with a message of the user" in said


def train(journey: Journey) -> None:
    journey.heading("Train, stop, go on")
    journey.remark("""A fifth of the rows is held out. While it trains, one line shows the step, the loss and the time
        that is left. After some steps Ada presses Ctrl-C: the run saves its weights and says how it goes on.""")
    terminal = journey.start(
        f"cookhouse run supervised {SETTINGS} eval_fraction=0.2 num_epochs=60 log_path=runs/prices"
    )
    terminal.wait_for(r"step 1\d/60 .* left")
    terminal.press(CTRL_C)
    said = journey.end(status=130)
    assert "interrupted and saved after" in said
    assert "cookhouse run supervised log_path=runs/prices behavior_if_log_dir_exists=resume" in said
    journey.run("cookhouse runs")
    journey.remark("""It goes on where it was. At the end stand the figures from before and after, and some of the
        held-out questions with what was answered; the weights are kept in the run directory.""")
    said = journey.run("cookhouse runs resume prices")
    assert re.search(r"going on after step \d+ of 60", said)
    assert "done after 60 of 60 steps" in said
    assert re.search(r"prompt .*\nexpected .*\nbefore .*\n(.*\n)?after .*", said)
    journey.run("cookhouse runs")


def read_the_report(journey: Journey, subtests: pytest.Subtests) -> None:
    journey.remark("""The report is one page, without anything from the network: the curves, the held-out answers with
        their questions, checkpoints, settings. It is readable on a telephone, too.""")
    with subtests.test("the report in a browser"):
        report = journey.folder / "runs" / "prices" / "report.html"
        with opened(report) as page:
            assert page.get_by_role("heading", name="Curves").is_visible()
            assert page.locator("figure[data-metric]").count() >= 4
            assert page.locator(".answer", has_text="expected").count() == 7, "one of the eight has no answer"
            settings = page.locator("#settings > summary")
            settings.focus()
            page.keyboard.press("Enter")
            assert page.get_by_role("cell", name="dataset_path", exact=True).is_visible()
        with opened(report, width=420) as page:
            assert wider_than_window(page) == 0
            page.locator("#checkpoints > summary").click()
            place = page.locator(".saved td:last-child").last.bounding_box()
            assert place is not None
            assert place["x"] + place["width"] <= 420, "one sees the paths by scrolling the table alone"


def talk(journey: Journey) -> None:
    journey.heading("Talk to it")
    terminal = journey.start("cookhouse chat prices")
    terminal.wait_for("Ctrl-D leaves\n>")
    for question in ("What does a cake cost?", "How much is a pie?"):
        terminal.type(question)
        terminal.wait_for(r"\n>")
    terminal.type("/hlep")
    terminal.wait_for("there is no command /hlep; /help lists them")
    terminal.type("/save chat.jsonl")
    terminal.wait_for(r"saved as line 1 of chat.jsonl(.*\n)+>")
    terminal.press(CTRL_D)
    journey.end()
    assert '"role": "user"' in (journey.folder / "chat.jsonl").read_text()
    journey.remark("One question needs no conversation. A name that is nearly right is answered with the right one:")
    journey.run('cookhouse sample prices "What is the price of a bun?"')
    assert "did you mean prices?" in journey.run('cookhouse sample price-s "What is the price of a bun?"', status=2)


def compare(journey: Journey, subtests: pytest.Subtests) -> None:
    journey.heading("Another run beside it")
    journey.remark("The same with a smaller learning rate, to compare what is held out:")
    settings = f"{SETTINGS} eval_fraction=0.2 num_epochs=60 learning_rate=5e-4"
    journey.run(f"cookhouse run supervised {settings} log_path=runs/slower")
    said = journey.run("cookhouse runs compare prices slower")
    assert re.search(r"learning_rate +0\.005 +0\.0005", said)
    assert re.search(r"test/nll +\S+ ± \S+ \* +\S+", said), "no best run by what was held out"
    with subtests.test("the comparison in a browser"):
        for width in (1000, 420):
            with opened(journey.folder / "runs" / "compare-prices-slower.html", width) as page:
                assert page.locator("figure[data-metric]").count() >= 4
                assert wider_than_window(page) == 0


def measure_and_take_along(journey: Journey, subtests: pytest.Subtests) -> None:
    journey.heading("A benchmark, and the model to take along")
    journey.remark("Questions with their answers, in a file, are a benchmark; each says how its answers are compared:")
    journey.write(
        "quiz.jsonl",
        '{"question": "What does a loaf cost?", "answer": "4", "match": "number"}\n'
        '{"question": "How much is a cake?", "answer": "9", "match": "number"}\n'
        '{"question": "What is the price of a roll?", "answer": "dollar", "match": "contains"}\n',
    )
    said = journey.run("cookhouse eval prices --benchmark quiz.jsonl log_path=runs/quiz")
    assert re.search(r"quiz correct +\d+%, .*of 3", said)
    assert "training" not in said
    answers = journey.folder / "runs" / "quiz" / "evaluations" / "quiz.html"
    with subtests.test("the page of answers in a browser"), opened(answers, width=420) as page:
        assert page.get_by_text("What does a loaf cost?").count() == 1
        assert wider_than_window(page) == 0
    journey.run("cookhouse checkpoints export prices adapter")
    journey.run("ls adapter")
    journey.remark("""She has the adapter, so the runs may go. What would be freed is said before anything is deleted.
        At the first look she leaves it, and at the second she agrees:""")
    prune = "cookhouse runs prune --larger-than 1K"
    for answer, status in (("n", 130), ("y", 0)):
        terminal = journey.start(prune)
        terminal.wait_for(r"\[y/N\]")
        terminal.type(answer)
        journey.end(status=status)
        assert (journey.folder / "runs" / "slower").exists() == (answer == "n")
