"""Learning from rollouts: advantages, penalties, and the datums that train on them."""
