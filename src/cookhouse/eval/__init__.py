"""Programs of tinker-cookbook that evaluate, by the paths that they have there; evaluations are `cookhouse.evals`."""
