"""`python -m syno` is the `syno` command."""

from syno.cli.start import main

main()
