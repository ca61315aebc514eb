"""How an answer begins and ends, and answers of two parts."""

_DIVIDER = "******"


def repeats_prompt(answer: str, prompt_to_repeat: str) -> bool:
    """It begins with the request; capitals do not matter."""
    return answer.strip().lower().startswith(prompt_to_repeat.strip().lower())


def has_two_responses(answer: str) -> bool:
    """Two different ones on the sides of six stars; nothing between two such marks is refused."""
    responses = [response.strip() for response in answer.split(_DIVIDER)]
    if not all(responses[1:-1]):
        return False
    written = [response for response in responses if response]
    return len(written) == 2 and written[0] != written[1]


def ends_with(answer: str, end_phrase: str) -> bool:
    """The last words are these, but for quotation marks; capitals do not matter."""
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def is_quoted(answer: str) -> bool:
    """The whole stands between double quotation marks."""
    text = answer.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'
