"""Triton kernels of synthesised operators against PyTorch's forms of the same on a GPU, forward and step.

    python benchmarks/gpu.py --json --tune 6 --workers 14
    python benchmarks/gpu.py --cases 4 --interpret      # no GPU: small shapes, checked and not timed

Fifty synthesised operators and Operator 1 at four layer sizes of ResNet-18, batch 128, float32, TF32 off for all. Kernels are
verified before anything is timed, against the float64 interpreter or against PyTorch in float64 (`--check torch`), every form's result and gradients are compared with the
kernels'. Forms are the emitted PyTorch and the nearest native calls (convolutions, unfold and einsum, stage by stage), each in
eager, contiguous and channels-last, with cuDNN's choice of algorithms (benchmark mode) and compiled. All take turns; `ratio` is
the time of the fastest form over that of the kernels: above 1 the kernels are faster. A step is forward and the gradients of
all inputs. Without a GPU it says so and ends with code 2.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from kernelbench.cases import operator1, random_graphs
from kernelbench.native import native_forms
from rich.console import Console
from rich.progress import track
from torch import Tensor

import syno
from syno.errors import SynoError, told
from syno.gpu import gpu_named, gpu_names, no_cuda
from syno.gpu.operators import PRECISION, PRECISIONS, TritonOperator
from syno.gpu.texts import Interpreter
from syno.support.numbers import significant
from syno.torch.aten import AtenFunction

BATCH = 128
#: Sizes that Triton's interpreter has time for.
SMALL = {"N": 1, "C_in": 16, "C_out": 16, "H": 6, "k_1": 3, "k_2": 3, "s": 2, "g": 2}
#: Largest difference of a form from the kernels, over the largest value.
APART = 1e-3
#: A sample runs calls for at least so long, milliseconds.
SAMPLE_MS = 5.0

Call = Callable[[], Any]
Form = Callable[..., Tensor]
Quiet = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Case:
    """An operator at its sizes."""

    name: str
    operator: syno.Operator


def cases(count: int, *, small: bool) -> list[Case]:
    """Operator 1 at four sizes and the first `count` of fifty synthesised operators."""
    found = []
    shapes = ((64, 56), (128, 28), (256, 14), (512, 7))
    for channels, size in ((16, 6),) if small else shapes:
        text, sizes = operator1(channels, channels, size)
        sizes["n"] = 1 if small else BATCH
        found.append(Case(f"Operator 1 {channels} {size}^2", syno.Operator.parse(text, **sizes)))
    for number, (graph, valuation) in enumerate(random_graphs()):
        if number == count:
            break
        symbolic = graph.staged()
        values = {**symbolic.valuations[valuation], "N": BATCH}
        if small:
            values |= SMALL
        program = symbolic.with_valuations([values]).at(0)
        found.append(Case(f"random {number}", syno.Operator.from_program(program)))
    return found


# ---- Checking without a GPU


def interpreted(
    chosen: Sequence[Case], gpu: str, quiet: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every case in Triton's interpreter: what was compared."""
    with Interpreter() as interpreter:
        for case in shown(chosen, quiet):
            module = case.operator.to_triton(gpu=gpu)
            result = module.verify(interpreter=interpreter)
            yield (
                case.name,
                {
                    "expr": case.operator.expr,
                    "kernels": [repr(kernel) for kernel in module.kernels],
                    "passed": result.passed,
                    "max_rel_err": {n: p.max_rel_err for n, p in result.parts.items()},
                },
            )


# ---- On a GPU


def forms_of(operator: syno.Operator, device: torch.device) -> dict[str, Form]:
    """Ways to write an operator in PyTorch, of all its inputs in order."""
    emitted = AtenFunction(operator, operator.inputs, torch.float32, device)
    native = native_forms(operator.program)
    return {"emitted": emitted, **{name: form.function for name, form in native.items()}}


def checked_by_torch(operator: syno.Operator, module: TritonOperator) -> dict[str, float]:
    """The kernels' results and gradients against the emitted PyTorch in float64 on the device: differences."""
    generator = torch.Generator().manual_seed(1)
    shapes = operator.shapes
    tensors = [torch.randn(shapes[n], generator=generator).to("cuda") for n in operator.inputs]
    cotangent = torch.randn(shapes[operator.outputs[0]], generator=generator).to("cuda")
    form = AtenFunction(operator, operator.inputs, torch.float64, tensors[0].device)
    wide = [t.double() for t in tensors]
    wanted = step_of(form, laid(wide, last=False), cotangent.double())()
    got = step_of(module.on_all, laid(tensors, last=False), cotangent)()
    names = ("forward", *(f"d{name}" for name in operator.inputs))
    return {n: difference([a], [b]) for n, a, b in zip(names, got, wanted, strict=True)}


@contextlib.contextmanager
def cudnn_chooses(chooses: bool) -> Iterator[None]:
    """cuDNN times its algorithms at the first call of a shape, or takes its guess."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = chooses
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def contestants_of(
    operator: syno.Operator, tensors: Sequence[Tensor]
) -> dict[str, tuple[Form, bool, bool]]:
    """By name, a function of the inputs, whether its images are channels-last, and whether cuDNN chooses."""
    found: dict[str, tuple[Form, bool, bool]] = {}
    images = any(t.dim() == 4 for t in tensors)
    for name, form in forms_of(operator, tensors[0].device).items():
        for last in (False, True) if images else (False,):
            order = ", channels-last" if last else ""
            found[f"{name}, eager{order}"] = (form, last, False)
            found[f"{name}, cuDNN{order}"] = (form, last, True)
        found[f"{name}, torch.compile"] = (torch.compile(form, fullgraph=True), False, True)
    return found


def laid(tensors: Sequence[Tensor], last: bool) -> list[Tensor]:
    """Leaves of a graph of their own, images in one order."""
    made = [
        t.contiguous(memory_format=torch.channels_last) if last and t.dim() == 4 else t.clone()
        for t in tensors
    ]
    return [t.detach().requires_grad_() for t in made]


def step_of(form: Form, tensors: Sequence[Tensor], cotangent: Tensor) -> Call:
    """Forward and the gradients of all inputs."""

    def step() -> tuple[Tensor, ...]:
        result = form(*tensors)
        return (result, *torch.autograd.grad(result, tensors, cotangent))

    return step


def forward_of(form: Form, tensors: Sequence[Tensor]) -> Call:
    """The result alone."""

    def forward() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (form(*tensors),)

    return forward


def timed(calls: dict[str, Call], turns: int) -> dict[str, list[float]]:
    """Microseconds of each, all in turns; how often each is called in a sample follows from its first."""
    repeats = {}
    for name, call in calls.items():
        repeats[name] = max(1, math.ceil(SAMPLE_MS / max(1e-3, sample_ms(call, 3) / 3)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            times[name].append(1e3 * sample_ms(call, repeats[name]) / repeats[name])
    return times


def sample_ms(call: Call, repeats: int) -> float:
    """Milliseconds that the device needs for some calls."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def difference(results: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest over all, relative to each tensor's largest value."""
    return max(
        float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1e-30))
        for a, b in zip(results, wanted, strict=True)
    )


def measured(
    case: Case, options: argparse.Namespace, quiet: Quiet = contextlib.nullcontext
) -> dict[str, Any]:
    """A case on the device; what is timed, is timed in `quiet()`."""
    module: TritonOperator = case.operator.to_triton(gpu=options.gpu, precision=options.precision)
    tuning = module.tune(options.tune).to_dict() if options.tune else None
    if options.check == "torch":
        errors = checked_by_torch(case.operator, module)
        if not max(errors.values()) <= APART:
            raise SynoError(f"[gpu] the kernels compute something else: {errors}")
    else:
        check = module.verify(seed=1)
        if not check:
            raise SynoError(f"[gpu] the kernels compute something else: {check}")
        errors = {name: part.max_rel_err for name, part in check.parts.items()}
    generator = torch.Generator().manual_seed(0)
    shapes = case.operator.shapes
    tensors = [torch.randn(shapes[n], generator=generator).to("cuda") for n in case.operator.inputs]
    cotangent = torch.randn(shapes[case.operator.outputs[0]], generator=generator).to("cuda")
    row: dict[str, Any] = {
        "name": case.name,
        "expr": case.operator.expr,
        "flops": case.operator.flops,
        "predicted_us": 1e6 * module.predicted_seconds,
        "kernels": [repr(kernel) for kernel in module.kernels],
        "errors": errors,
        "tuning": tuning,
        "left_out": {},
    }
    own = laid(tensors, last=False)
    for what in ("forward", "step"):

        def made(form: Form, given: Sequence[Tensor], what: str = what) -> Call:
            return forward_of(form, given) if what == "forward" else step_of(form, given, cotangent)

        kernels = made(module.on_all, own)
        wanted = kernels()
        calls: dict[str, Call] = {"syno": kernels}
        for name, (form, last, chooses) in contestants_of(case.operator, tensors).items():
            plain = made(form, laid(tensors, last))

            def call(plain: Call = plain, chooses: bool = chooses) -> Any:
                with cudnn_chooses(chooses):
                    return plain()

            try:
                apart = difference(call(), wanted)
            except Exception as error:  # whatever a form that does not fit raises
                row["left_out"][f"{what}: {name}"] = told(error)
                continue
            if apart > APART:
                raise SynoError(f"[gpu] {name} differs from the kernels by {apart:.1e} ({what})")
            calls[name] = call
        with quiet():
            row[what] = compared(timed(calls, options.turns))
    return row


# ---- Cases side by side: they compile at a time, and are timed one after the other


def worked(case: Case, options: argparse.Namespace, folder: str) -> dict[str, Any] | str:
    """A case, in whatever process: the row, or why there is none."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1)
    lock = FileLock(f"{folder}/device.lock")
    try:
        return measured(case, options, lambda: lock)
    except (SynoError, torch.OutOfMemoryError) as error:
        return told(error)
    finally:
        torch._dynamo.reset()
        torch.cuda.empty_cache()


def rows_of(
    chosen: Sequence[Case], options: argparse.Namespace
) -> Iterator[tuple[Case, dict[str, Any] | str]]:
    """Each case with its row or why there is none, as they are done."""
    with tempfile.TemporaryDirectory() as folder:
        if options.workers == 1:
            for case in chosen:
                yield case, worked(case, options, folder)
            return
        spawn = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(options.workers, mp_context=spawn)
        try:
            waiting = {pool.submit(numbered, i, options, folder): c for i, c in enumerate(chosen)}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def numbered(number: int, options: argparse.Namespace, folder: str) -> dict[str, Any] | str:
    """A case by its place, for operators do not go from process to process."""
    return worked(cases(options.cases, small=False)[number], options, folder)


def compared(times: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, spreads, and the best form against the kernels, turn by turn."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    others = {name: value for name, value in medians.items() if name != "syno"}
    best = min(others, key=lambda name: others[name])
    low, _, high = statistics.quantiles(times["syno"], n=4)
    ratios = [b / a for a, b in zip(times["syno"], times[best], strict=True)]
    return {
        "us": medians["syno"],
        "iqr_us": high - low,
        "forms_us": others,
        "best_form": best,
        "ratio": statistics.median(ratios),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means and the least of the ratios."""
    found = {}
    for what in ("forward", "step"):
        ratios = [row[what]["ratio"] for row in rows]
        found[what] = {
            "geomean": math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None,
            "lowest": min(ratios, default=None),
        }
    return found


def shown(found: Iterable[Any], quiet: bool, count: int | None = None) -> Any:
    """What is found, with a bar on a terminal."""
    console = Console(stderr=True)
    hidden = not (quiet and console.is_terminal)
    return track(found, "running", total=count, console=console, disable=hidden)


def device_facts(gpu: str) -> dict[str, Any]:
    """What ran it."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "bytes": properties.total_memory,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "model": json.loads(gpu_named(gpu).to_json()),
    }


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=50, help="of the fifty synthesised operators")
    parser.add_argument(
        "--gpu", default="h200", help=f"tiles for: {', '.join(gpu_names())}, or a GPU file"
    )
    parser.add_argument("--turns", type=int, default=11, help="samples of each; at least 3")
    parser.add_argument(
        "--tune",
        type=int,
        default=0,
        help="candidates of each kernel to time; 0: take the predicted",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=PRECISION, help="of float32 products"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="processes, each with cases of its own; timed one at a time",
    )
    parser.add_argument(
        "--check",
        choices=("interpreter", "torch"),
        default="interpreter",
        help="what kernels are verified against: points by the float64 interpreter, or all results by PyTorch in float64",
    )
    parser.add_argument("--interpret", action="store_true", help="check small shapes without a GPU")
    parser.add_argument("--out", help="a file for the rows so far, written after each case")
    parser.add_argument("--json", action="store_true")
    return parser


def main(given: Sequence[str] | None = None) -> int:
    """Prints a table, or one JSON document with `--json`; 0 if all cases ran, 2 where nothing can."""
    options = arguments().parse_args(given)
    try:
        gpu_named(options.gpu)
        if options.turns < 3 or not 0 <= options.cases <= 50:
            raise SynoError("[gpu] --turns must be at least 3 and --cases between 0 and 50")
        if options.workers < 1 or options.tune < 0:
            raise SynoError("[gpu] --workers must be at least 1 and --tune at least 0")
        if not options.interpret and (why := no_cuda()):
            raise SynoError(
                f"[gpu] no CUDA device: {why}; --interpret checks small shapes on the CPU, without times"
            )
        chosen = cases(options.cases, small=options.interpret)
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    command = "python benchmarks/gpu.py " + " ".join(sys.argv[1:] if given is None else given)
    if options.interpret:
        return check_all(chosen, options, command)
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    try:
        for case, row in shown(rows_of(chosen, options), options.json, len(chosen)):
            if isinstance(row, str):
                failed[case.name] = row
                print(f"{case.name}: {row}", file=sys.stderr, flush=True)
                continue
            rows.append(row)
            if not options.json:
                print(line(row), flush=True)
            if options.out:
                Path(options.out).write_text(json.dumps({"cases": rows, "failed": failed}))
    except KeyboardInterrupt:
        print(f"interrupted: {len(rows)} of {len(chosen)} cases", file=sys.stderr)
        done = {*failed, *(row["name"] for row in rows)}
        failed |= {c.name: "interrupted" for c in chosen if c.name not in done}
    names = [case.name for case in chosen]
    rows.sort(key=lambda row: names.index(row["name"]))
    document = {
        "command": command,
        "date": datetime.now().astimezone().date().isoformat(),
        "machine": device_facts(options.gpu),
        "batch": BATCH,
        "tf32": False,
        "cases": rows,
        "failed": failed,
        "summary": summary(rows),
    }
    print(json.dumps(document, indent=1) if options.json else document["summary"])
    return 1 if failed else 0


def check_all(chosen: Sequence[Case], options: argparse.Namespace, command: str) -> int:
    """`--interpret`: 0 where all kernels compute their operators."""
    rows = []
    for name, row in interpreted(chosen, options.gpu, options.json):
        rows.append({"name": name, **row})
        if not options.json:
            worst = max(row["max_rel_err"].values())
            print(
                f"{name:24} {'verified' if row['passed'] else 'WRONG':8} error {worst:.1e}",
                flush=True,
            )
    passed = all(row["passed"] for row in rows)
    if options.json:
        print(json.dumps({"command": command, "passed": passed, "cases": rows}, indent=1))
    return 0 if passed else 1


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    parts = [
        f"{what} {significant(row[what]['us']):>8} us {row[what]['ratio']:5.2f}x of {row[what]['best_form']}"
        for what in ("forward", "step")
    ]
    return f"{row['name']:24} " + "   ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
