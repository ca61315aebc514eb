import pytest

from cookhouse.report.last_message import last_message

CHATML = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (CHATML, "What is 2 + 2?"),
        (f"{CHATML}<think>\n\n</think>\n\n", "What is 2 + 2?"),
        ("Human: Is it 5?\nAI:", "Is it 5?"),
        ("<s>[INST] user: hello [/INST]", "user: hello"),
        ("<start_of_turn>user\nA\n\nB<end_of_turn>\n<start_of_turn>model\n", "A\n\nB"),
        ("Once upon a time", "Once upon a time"),
        ("<|im_start|>", "<|im_start|>"),
        ("", ""),
    ],
)
def test_a_cell_has_what_was_asked(prompt: str, message: str) -> None:
    # Catches a table of rollouts in which every question is the end of the chat template.
    assert last_message(prompt) == message
