"""How often something occurs, against a number."""

RELATIONS = ("less than", "at least")


def holds(count: int, relation: str, number: int) -> bool:
    """Whether `count` is, as the relation says, less than the number or at least it."""
    return count < number if relation == "less than" else count >= number
