"""`python -m cookhouse.eval.run_inspect_evals model_path=… tasks=…` is `cookhouse run eval` with the same settings."""

from cookhouse.recipes.program import become_run

if __name__ == "__main__":
    become_run("eval")
