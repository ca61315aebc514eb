"""What a service answers to a loss over pairs that it computes."""

from unittest.mock import Mock

import numpy as np
import pytest
from tests.algorithms.base.kit import answered, datum

from cookhouse.algorithms.pairs.calls import answer_sums, token_logprobs
from cookhouse.algorithms.pairs.objective import pair_objective
from cookhouse.algorithms.pairs.reference import PairPayload
from cookhouse.settings import PairLossSettings
from cookhouse.training import PairLossOffer, Work
from cookhouse.training.loop.objective import answered_datums
from cookhouse.weights.checkpoints import Cursor

ANSWER = datum([1, 2, 3, 4], weights=[0, 1, 0.5])


def test_logprobs_of_tokens_stand_behind_their_sum() -> None:
    """Catches a sum over both, and logprobs that are shifted to the prompt's targets."""
    part = answered([ANSWER], [[-3.0, -0.25, -2.5, -0.75]])
    assert answer_sums(part[1]) == [-3.25]
    [(_, fields)] = answered_datums([part])
    assert token_logprobs(ANSWER, fields) == pytest.approx([np.nan, -2.5, -0.75], nan_ok=True)


def test_without_them_there_are_none() -> None:
    """Catches the two values of a sum that are shown as logprobs of two tokens."""
    [(_, fields)] = answered_datums([answered([ANSWER], [[-3.0, -0.25]])])
    assert token_logprobs(ANSWER, fields) is None


@pytest.mark.parametrize(("is_offered", "is_wanted"), [(True, True), (True, False), (False, True), (False, False)])
def test_they_are_asked_for_only_where_they_are_offered_and_wanted(is_offered: bool, is_wanted: bool) -> None:
    """Catches an option that a server of another version refuses, and values on the wire that nobody reads."""
    client = Mock()
    offer = PairLossOffer(names=frozenset({"dpo"}), has_token_logprobs=is_offered, max_datums=1024, max_bytes=10**6)
    work = Work(cursor=Cursor(), data_D=[ANSWER, ANSWER], payload=PairPayload(reference_P2=np.zeros((1, 2))))
    pair_objective(PairLossSettings(), offer, with_logprobs=is_wanted).loss.submit(client, work)
    [(_, name, config)] = [call.args for call in client.forward_backward.call_args_list]
    assert name == "dpo"
    assert ("token_logprobs" in config) == (is_offered and is_wanted)
