"""Where the ``syno`` command begins: signals are handled before anything is loaded."""

from __future__ import annotations

from syno.cli.interrupts import install

install()


def main() -> None:
    """Entry point of the ``syno`` command."""
    from syno.cli.main import main as run

    run()
