"""Catches servers that keep what they share at different places."""

import pytest
from tests.server.leases.test_members import Group, Server, group

from cookhouse.errors import InputError
from cookhouse.server.leases.members import Profile

__all__ = ["group"]

HERE = Profile(journal="files", checkpoints="s3://kitchen/checkpoints", base_models=["tiny"])


@pytest.fixture
def newcomer(group: Group) -> Server:
    group.new(HERE)
    return group.made()


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (
            Profile(journal="s3://kitchen/journal", checkpoints="s3://kitchen/checkpoints"),
            "need the same --journal: this one has s3://kitchen/journal, and the one at http://here:1 files",
        ),
        (
            Profile(journal="files"),
            "need the same --checkpoints: this one has none, and the one at http://here:1 s3://kitchen/checkpoints",
        ),
    ],
)
def test_another_place_is_refused(newcomer: Server, profile: Profile, words: str) -> None:
    """Would catch a server that looks for bodies and checkpoints where the others have put none."""
    for refuses in (newcomer.members.check, newcomer.members.join):
        with pytest.raises(InputError, match=words):
            refuses(profile)
    assert len(newcomer.living()) == 1


def test_the_same_places_are_not(newcomer: Server) -> None:
    newcomer.members.join(Profile(journal="files", checkpoints="s3://kitchen/checkpoints/"))
    assert len(newcomer.living()) == 2


def test_a_dead_server_s_places_do_not_count(group: Group) -> None:
    """Would catch a service that can never be moved to another bucket, since a killed server said where it was."""
    dead = group.new(HERE)
    group.silence(dead)
    group.new(Profile(journal="files"))


def test_an_older_version_says_nothing(group: Group) -> None:
    """Would catch an upgrade of one server after the other that is refused."""
    group.new()
    group.new(HERE)
