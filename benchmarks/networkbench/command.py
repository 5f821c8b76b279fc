"""The command line of `networks.py`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import networks
from kernelbench.results import geomean

from networkbench.peers import NAMES
from networkbench.run import Settings, run_network
from syno.errors import SynoError, unknown_name
from syno.machines.model import describe, machine_model
from syno.support.files import write_whole
from syno.support.machine import describe_machine

_PACKAGES = ("syno", "torch", "onnx", "onnxruntime", "openvino", "jax", "numpy")


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks", default="", help=f"some of {','.join(networks.names())}; default all"
    )
    parser.add_argument(
        "--peers", default="eager,compile,onnxruntime", help=f"of {','.join(NAMES)}"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15, help="samples of each; at least 3")
    parser.add_argument("--derive", action="store_true", help="derived kernels, too")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a network's derivations")
    parser.add_argument(
        "--prepare", type=float, default=1200.0, help="seconds that a peer may take to be ready"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the JSON document, too")
    return parser


def main(description: str) -> int:
    """Prints a table, or one JSON document with `--json`; 0 if every network was measured."""
    options = arguments(description).parse_args()
    try:
        names = _chosen("network", options.networks, networks.names()) or networks.names()
        peers = _chosen("peer", options.peers, NAMES)
        if options.threads < 1 or options.batch < 1 or options.turns < 3:
            raise SynoError(
                "[networks] --threads and --batch must be at least 1 and --turns at least 3"
            )
        if options.output is not None and not options.output.resolve().parent.is_dir():
            raise SynoError(f"[networks] there is no folder for {options.output}; make it first")
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, interrupted)
    settings = Settings(
        peers,
        options.threads,
        options.batch,
        options.turns,
        options.derive,
        options.seconds,
        prepare_s=options.prepare,
    )
    model = machine_model(measure=True)
    document: dict[str, Any] = {
        "machine": {**msgspec.to_builtins(describe_machine()), "model": describe(model)},
        "versions": versions(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "command": "python benchmarks/networks.py " + " ".join(sys.argv[1:]),
        "threads": options.threads,
        "batch": options.batch,
    }
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        machine = Path(directory) / "machine.json"
        machine.write_text(model.to_json())
        try:
            for name in names:
                rows.append(run_network(name, settings, machine))
                print(line(rows[-1]), file=sys.stderr if options.json else sys.stdout, flush=True)
                _write(options.output, document | summary(rows))
        except KeyboardInterrupt:
            print(f"interrupted: {len(rows)} of {len(names)} networks", file=sys.stderr)
            common = {"batch": options.batch, "threads": options.threads, "error": "interrupted"}
            rows += [{"network": name, **common} for name in names[len(rows) :]]
    document |= summary(rows)
    _write(options.output, document)
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        print(f"geomean {_number(document['geomean'])}, least {_number(document['least'])}")
        if options.derive:
            print(f"geomean to underived {_number(document['geomean_to_underived'])}")
    return 1 if any("error" in row for row in rows) else 0


def _chosen(what: str, text: str, known: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if name not in known:
            raise unknown_name(what, name, known)
    return names


def _write(path: Path | None, document: dict[str, Any]) -> None:
    """After every network: what was measured is kept whatever ends the run."""
    if path is not None:
        write_whole(path, json.dumps(document, indent=1) + "\n")


def versions() -> dict[str, str]:
    """Of the packages that are compared, as far as they are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The rows, and their ratios taken together."""
    ratios = [row["ratio_to_best_peer"] for row in rows if row.get("ratio_to_best_peer")]
    peers = dict.fromkeys(peer for row in rows for peer in row.get("ratios", {}))
    return {
        "networks": list(rows),
        "failed": {row["network"]: row["error"] for row in rows if "error" in row},
        "geomean": geomean(ratios),
        "geomean_to_underived": geomean(
            [row["ratio_to_underived"] for row in rows if row.get("ratio_to_underived")]
        ),
        "least": min(ratios, default=None),
        "geomean_to": {
            peer: geomean([row["ratios"][peer] for row in rows if peer in row.get("ratios", {})])
            for peer in peers
        },
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    if "us" not in row:
        return f"{row['network']:18} {row['error']}"
    peers = ", ".join(f"{peer} {us / 1e3:.2f}" for peer, us in row["peers_us"].items())
    absent = "".join(f"; without {name}: {why}" for name, why in row["absent"].items())
    cached = _number(row["cached_s"])
    ratio = row.get("ratio_to_underived")
    derived = f"{ratio:.2f}x without derivation  " if ratio else ""
    return (
        f"{row['network']:18} {row['us'] / 1e3:9.2f} ms ±{row['spread'] / 1e3:.2f}  "
        f"{_number(row['ratio_to_best_peer'])}x {row['best_peer'] or 'no peer'} ({peers})  {derived}error {row['max_rel_err']:.1e}  "
        f"compiled in {row['compile_s']:.2f} s, again {cached} s  {row['stages']} stages, "
        f"{len(row['fallbacks'])} by PyTorch{absent}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def interrupted(number: int, frame: FrameType | None) -> None:
    """A signal that ends the run as Ctrl-C does: what was measured is printed."""
    raise KeyboardInterrupt
