"""`python -m syno` is the `syno` command."""

from syno.cli.main import main

main()
