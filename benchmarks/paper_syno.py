"""The experiments of the Syno paper (ASPLOS 2025, section 9), as a CPU allows: one sub-command each.

    python benchmarks/paper_syno.py end-to-end --networks resnet18 --operators operator1
    python benchmarks/paper_syno.py layers --json
    python benchmarks/paper_syno.py trained --operators conv operator1 --seeds 0 1 2
    python benchmarks/paper_syno.py gpt --text FILE --steps 300
    python benchmarks/paper_syno.py searched images --small
    python benchmarks/paper_syno.py transfer --networks resnet18

Every run adds to `benchmarks/results/paper_NAME.json` what it measured, with machine, date and
command, and draws `paper_NAME.svg` again: a long experiment can be made in pieces. `--output`
writes elsewhere; `--json` prints the whole document instead of tables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from paper import end_to_end, gpt, layers, searched, store, trained, transfer

EXPERIMENTS = {
    "end-to-end": end_to_end,
    "layers": layers,
    "trained": trained,
    "gpt": gpt,
    "searched": searched,
    "transfer": transfer,
}


def main() -> None:
    """Runs one experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="experiment", required=True)
    for name, module in EXPERIMENTS.items():
        documentation = module.__doc__ or ""
        command = commands.add_parser(
            name,
            help=documentation.splitlines()[0],
            description=documentation,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(command)
        command.add_argument("--json", action="store_true", help="print the whole document")
        command.add_argument("--output", type=Path, help="the results file")
    options = parser.parse_args()
    module = EXPERIMENTS[options.experiment]
    if options.output is None:
        own = getattr(module, "output", None)
        name = options.experiment.replace("-", "_")
        options.output = own(options) if own else store.RESULTS / f"paper_{name}.json"
    # Tables and progress go where they do not mix with the document.
    with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):
        document = module.run(options)
        module.plot(document, options.output.with_suffix(".svg"))
    if options.json:
        print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
