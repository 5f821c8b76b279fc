"""The command line: ``syno <command>``; every command has ``--json`` and documented exit codes."""
