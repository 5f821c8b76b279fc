"""Reuse of tuned programs: what ETO counts and estimates, and what reuse gives on this machine.

    python benchmarks/reuse.py paper --json       # operators, pairs, bridges, Example 3, costs of plans; minutes
    python benchmarks/reuse.py paper --small      # BERT only; seconds

`paper` computes the tables of the paper (PVLDB 15(2), 2022) for GPUs: exact averages of the expected
measurements beside the printed, sampled ones, the optimal trees beside the paper's approximation.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import msgspec
from reusebench.paper import paper

from syno.errors import SynoError
from syno.machine import describe_machine


def arguments() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="paper", choices=["paper"])
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--json", action="store_true")
    return parser


def main() -> None:
    options = arguments().parse_args()
    document: dict[str, Any] = {
        "machine": msgspec.to_builtins(describe_machine()),
        "command": "python benchmarks/reuse.py " + " ".join(sys.argv[1:]),
    }
    try:
        document |= paper(small=options.small, show=not options.json)
    except SynoError as error:
        raise SystemExit(str(error)) from error
    if options.json:
        print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
