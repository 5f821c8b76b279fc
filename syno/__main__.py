"""`python -m syno` is the `syno` command."""

from syno.support.fresh import leave_sessions

leave_sessions()  # before anything else is imported: `-m` puts the working directory first

from syno.cli.start import main  # noqa: E402

main()
