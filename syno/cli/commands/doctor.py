"""``syno doctor``: what is found on this machine, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from syno.cli.commands.options import AsJson
from syno.cli.common import Exit, guarded, print_json, print_table, suffix_of


@guarded
def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the machine's rates again.")
    ] = False,
    roofline: Annotated[
        Optional[Path],  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
        typer.Option(
            callback=suffix_of(lambda: (".png", ".svg")),
            help="Draw the machine's roofline: a .png or .svg to write.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """What syno finds on this machine; compiles and checks kernels. Exit 1 when unusable."""
    from syno.cli.doctor import examine

    report = examine(measure=measure)
    if roofline is not None:
        from syno.machines.model import machine_model, plot_roofline

        plot_roofline(machine_model()).figure.savefig(roofline)
    if json:
        print_json(report)
    else:
        machine = report["machine"]
        rows = [
            ["machine", str(machine)],
            ["CPU target", f"{report['cpu']['name']}, {report['cpu']['vector_bits']}-bit vectors"],
            ["LLVM", report["llvm"]],
            [
                "kernel cache",
                report["cache_directory"] + ("" if report["cache_writable"] else " (not writable)")
                if report["cache_directory"]
                else "none: SYNO_CACHE is empty",
            ],
        ]
        model = report["machine_model"]
        rows.append(
            [
                "one core",
                f"{model['peak_gflops']:.1f} GFLOP/s: {model['ghz']:.2f} GHz, "
                f"{model['fma_per_cycle']:.2f} multiply-adds of {model['vector_bits']} bits a cycle",
            ]
        )
        if model["disturbed"]:
            rows.append(["disturbed", model["disturbed"]])
        rows += [
            [
                level["name"],
                f"{level['bytes'] / 1024:,.0f} KiB: read {level['read_gbs']:.0f} GB/s, "
                f"write {level['write_gbs']:.0f}, copy {level['copy_gbs']:.0f}, latency {level['latency_ns']:.1f} ns",
            ]
            for level in model["levels"]
        ]
        if "tlb" in model:
            tlb = model["tlb"]
            rows.append(
                [
                    "TLB",
                    f"{tlb['pages']:,} pages of {tlb['page_bytes'] // 1024} KiB, walk {tlb['walk_ns']:.1f} ns",
                ]
            )
        rows.append(
            [
                "cycles",
                ", ".join(
                    f"{name} {cycles:.2f}" for name, cycles in model["access_cycles"].items()
                ),
            ]
        )
        rows += [
            [
                f"kernel, {name}",
                ("verified, error " if check["ok"] else "FAILED: ") + check["detail"],
            ]
            for name, check in report["kernels"].items()
        ]
        torch = report["torch"]
        rows.append(
            [
                "torch",
                f"{torch['version']}, {torch['threads']} threads, CUDA {'yes' if torch['cuda'] else 'no'}"
                if torch
                else 'not installed: pip install "syno[torch]" for models and training',
            ]
        )
        print_table("syno doctor", ["", ""], rows)
    if not report["usable"]:
        raise typer.Exit(Exit.FAILED)
