"""lm-evaluation-harness's own command with the model `cookhouse`: `python -m cookhouse.harnesses.lm_eval run ...`."""

import sys

from cookhouse.errors import CookhouseError
from cookhouse.extras import install_command


def main() -> None:
    """Run the harness's command line; what cookhouse refuses is reported in one line."""
    try:
        from lm_eval.__main__ import cli_evaluate

        import cookhouse.harnesses.lm_eval_model  # noqa: F401 - registers the model
    except ImportError as error:
        sys.exit(f"error: {error}; lm-evaluation-harness is an extra: {install_command('lm-eval')}")
    try:
        cli_evaluate()
    except CookhouseError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
