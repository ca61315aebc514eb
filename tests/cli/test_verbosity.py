"""What the terminal shows of what is logged, by flag and by environment."""

import subprocess
import sys

import pytest

SAID = """
import logging
from cookhouse.cli.verbosity import Level, set_level, show_logs
{set}
for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
    logging.getLogger("cookhouse.x").log(level, "ours")
logging.getLogger("httpx").info("a poll")
"""
EVERY = ["debug: ours", "info: ours", "warning: ours", "error: ours"]


@pytest.mark.parametrize(
    ("how", "shown"),
    [
        ("show_logs({})", 2),
        ("show_logs({'COOKHOUSE_LOG': 'Info'})", 3),
        ("show_logs({'COOKHOUSE_LOG': 'error'})", 1),
        ("show_logs({}); set_level(Level.DEBUG)", 4),
        ("show_logs({'COOKHOUSE_LOG': 'debug'}); set_level(Level.WARNING)", 2),
    ],
)
def test_the_level_decides_what_is_shown(how: str, shown: int) -> None:
    # Catches a poll of the HTTP client in every line of --verbose.
    code = SAID.format(set=how)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == EVERY[-shown:]


@pytest.mark.parametrize(("how", "count"), [("show_logs({})", 1), ("show_logs({}); set_level(Level.DEBUG)", 3)])
def test_what_becomes_an_error_is_told_once(how: str, count: int) -> None:
    # Catches a request that the service refuses being told by the SDK's log, too, once for each that was in flight.
    code = SAID.partition("for level")[0].format(set=how) + (
        "log = logging.getLogger('tinker.lib.retry_handler')\n"
        "log.error('refused')\nlog.error('refused')\nlog.warning('it waits')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["error: refused", "error: refused", "warning: it waits"][-count:]


def test_a_library_tells_once_that_it_tries_again() -> None:
    # Catches five lines about a hub that cannot be reached, before the error that says so.
    code = SAID.partition("for level")[0].format(set="show_logs({})") + (
        "hub, ours = logging.getLogger('huggingface_hub.utils._http'), logging.getLogger('cookhouse.x')\n"
        "for number in (1, 2, 3):\n"
        "    hub.warning('Retrying in %ss [Retry %s/5].', number, number)\n"
        "    hub.warning('another thing %s', number)\n"
        "    ours.warning('retry %s', number)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = [f"warning: {text} {number}" for number in (1, 2, 3) for text in ("another thing", "retry")]
    assert done.stderr.splitlines() == ["warning: Retrying in 1s [Retry 1/5].", *told]


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["recipes"], {"COOKHOUSE_LOG": "loud"}, "unknown COOKHOUSE_LOG 'loud'; allowed: debug, error, info, warning"),
        (["--log-level", "loud", "recipes"], {}, "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
    ],
)
def test_a_level_that_is_none_is_refused(arguments: list[str], variables: dict[str, str], message: str) -> None:
    code = f"from cookhouse.cli import main; main({arguments!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    "words", [["-h"], ["run", "supervised", "-h"], ["runs", "-h"], ["render", "-h"], ["chat", "-h"]]
)
def test_help_has_a_short_name_everywhere(words: list[str]) -> None:
    code = f"from cookhouse.cli import main; main({words!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: cookhouse")
    assert done.stdout.count("-h, --help") == 1
