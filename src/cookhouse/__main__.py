"""`python -m cookhouse` is the `cookhouse` command."""

from cookhouse.cli import main

main()
