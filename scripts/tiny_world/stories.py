"""Plain prose: what the people of the small world do all day."""

import random

from scripts.tiny_world.lexicon import ACTIONS, ADJECTIVES, MEALS, MOODS, NAMES, NOUNS, PLACES, SEASONS, THINGS, WEATHER


def _opening(rng: random.Random, name: str) -> str:
    place, weather, season = rng.choice(PLACES), rng.choice(WEATHER), rng.choice(SEASONS)
    return rng.choice(
        (
            f"One {weather} day {name} went to the {place}.",
            f"It was {season}, and {name} was in the {place}.",
            f"{name} lived near the {place}.",
            f"In {season} the {place} is {rng.choice(ADJECTIVES)}, and {name} likes it.",
        )
    )


def _event(rng: random.Random, name: str, friend: str) -> str:
    noun, adjective, place = rng.choice(NOUNS), rng.choice(ADJECTIVES), rng.choice(PLACES)
    return rng.choice(
        (
            f"{name} {rng.choice(ACTIONS)} and {rng.choice(ACTIONS)} until the evening.",
            f"There {name} saw {friend}, who carried a {adjective} {noun}.",
            f'"Look at the {noun}," said {friend}. "It is {adjective}."',
            f"They ate {rng.choice(MEALS)} and {rng.choice(ACTIONS)} together.",
            f"{friend} was {rng.choice(MOODS)}, but {name} was {rng.choice(MOODS)}.",
            f"Behind the {place} they found a {adjective} {noun}.",
            f"{name} asked {friend} about the {noun}, and {friend} {rng.choice(ACTIONS)}.",
            f"The {noun} was {adjective}, so they left it in the {place}.",
            f"{friend} had many {rng.choice(THINGS)[1]} and gave some to {name}.",
        )
    )


def _ending(rng: random.Random, name: str, friend: str) -> str:
    return rng.choice(
        (
            f"In the evening {name} went home and slept.",
            f"{name} was {rng.choice(MOODS)} and told {friend} so.",
            f"Then the day was over, and everybody was {rng.choice(MOODS)}.",
            f"{friend} thanked {name} and went back to the {rng.choice(PLACES)}.",
        )
    )


def story(rng: random.Random) -> str:
    """A paragraph of four to seven sentences about two people."""
    name, friend = rng.sample(NAMES, 2)
    events = [_event(rng, name, friend) for _ in range(rng.randint(2, 5))]
    return " ".join([_opening(rng, name), *events, _ending(rng, name, friend)])


def topic(rng: random.Random) -> str:
    """What one could ask for a story about."""
    name, noun, place = rng.choice(NAMES), rng.choice(NOUNS), rng.choice(PLACES)
    return rng.choice(
        (
            f"Tell me about {name}.",
            f"A story about the {noun}, please.",
            f"What happened in the {place}?",
            f"I was in the {place} with {name}.",
            f"Who saw the {noun} near the {place}?",
        )
    )
