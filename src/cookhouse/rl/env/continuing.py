"""Prompts that go on from what was sampled, token for token."""

from collections.abc import Sequence

from cookhouse.chat import Message, Renderer, TrainOnWhat


def continued(
    renderer: Renderer, sequence: list[int], said: Sequence[Message], rendered: list[int]
) -> list[int] | None:
    """The prompt `rendered`, which begins with the messages `said`, with the tokens that they were sampled as.

    `sequence` is the prompt and the answer of which `said` are the messages. Of an answer that was cut, the end mark
    follows, which the model did not write. None where the format cannot go on from there: it writes history otherwise
    than what was sampled, or its end mark is text, which may lie inside a token.
    """
    if not renderer.has_extension_property:
        return None
    untrained: list[Message] = [{**message, "trainable": False} for message in said]
    closed = renderer.build_supervised_example(untrained, TrainOnWhat.CUSTOMIZED)[0].to_ints()
    if rendered[: len(closed)] != closed:
        return None
    if closed[-1:] == sequence[-1:]:
        return sequence + rendered[len(closed) :]
    if closed[-1] in renderer.get_stop_sequences():
        return sequence + rendered[len(closed) - 1 :]
    return None
