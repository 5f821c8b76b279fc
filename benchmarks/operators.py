"""The named operators at the seven distinct sizes of ResNet-18: native kernels against PyTorch.

    python benchmarks/operators.py --json
    python benchmarks/operators.py --names conv3x3 operator1 --compile

Every kernel is verified against the interpreter before it is timed, every PyTorch form against the
kernel. `ratio` is the fastest PyTorch form's time over the kernel's, measured in turns: above 1 the
kernel is faster. One thread and batch 1 unless said.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
import torch
from kernelbench.written import written_module
from torch import Tensor
from torch.nn import functional as F

import syno
from syno.support.machine import describe_machine
from syno.support.numbers import significant
from syno.timing.bench import measure

#: (C_in, C_out, H) of the layers that the paper replaces in ResNet-18 at 224 x 224.
VALUATIONS = (
    (64, 64, 56),
    (64, 128, 28),
    (128, 128, 28),
    (128, 256, 14),
    (256, 256, 14),
    (256, 512, 7),
    (512, 512, 7),
)
GROUPS, SHRINK = 4, 4  # of the grouped convolution and of Operator 1

Form = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """An operator: its formula at (C_in, C_out, H), and ways to write it in PyTorch."""

    name: str
    formula: Callable[[int, int, int], tuple[str, dict[str, int]]]
    forms: dict[str, Form] = field(default_factory=dict)


def _conv(kernel: int, dilation: int = 1) -> Callable[[int, int, int], tuple[str, dict[str, int]]]:
    def formula(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
        pad = dilation * (kernel // 2)
        h_index, w_index = (
            f"{i}+{dilation}*{k}-{pad}" if dilation > 1 else f"{i}+{k}-{pad}" if pad else i
            for i, k in (("h", "r"), ("w", "s"))
        )
        sizes = {"n": 1, "o": o, "c": c, "h": h, "w": h}
        if kernel == 1:
            return "y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]", sizes
        text = f"y[n,o,h,w] = sum[c,r,s] x[n,c,{h_index},{w_index}] * k[o,c,r,s]"
        return text, {**sizes, "r": kernel, "s": kernel}

    return formula


def _grouped(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
    text = (
        f"y[n,o,h,w] = sum[c,r,s] x[n,{c // GROUPS}*(o/{o // GROUPS})+c,h+r-1,w+s-1] * k[o,c,r,s]"
    )
    return text, {"n": 1, "o": o, "c": c // GROUPS, "h": h, "w": h, "r": 3, "s": 3}


def _depthwise(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
    text = "y[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]"
    return text, {"n": 1, "c": c, "h": h, "w": h, "r": 3, "s": 3}


def _separable(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
    text = (
        "t[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]; "
        "y[n,o,h,w] = sum[c] t[n,c,h,w] * p[o,c]"
    )
    return text, {"n": 1, "o": o, "c": c, "h": h, "w": h, "r": 3, "s": 3}


def _average_pool(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
    half = h // 2
    sizes = {"n": 1, "c": c, "h": half, "w": half, "r": 2, "s": 2}
    return "y[n,c,h,w] = mean[r,s] x[n,c,2*h+r,2*w+s]", sizes


def _pixel_shuffle(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
    sizes = {"n": 1, "c": c // 4, "h": 2 * h, "w": 2 * h}
    return "y[n,c,h,w] = x[n,4*c+2*(h%2)+w%2,h/2,w/2]", sizes


def _matmul(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
    return "y[m,n] = sum[k] x[m,k] * w[k,n]", {"m": h * h, "n": o, "k": c}


def _operator1(c: int, o: int, h: int) -> tuple[str, dict[str, int]]:
    channel = f"{c // GROUPS}*g+c"
    text = (
        f"t[n,g,d,s,h,w] = sum[c] x[n,{channel},h,w+s-1] * a[d,{channel},s]; "
        "y[n,o,h,w] = sum[r,s,g,d] t[n,g,d,s,h+r-1,w] * b[o,r,s,g,d]"
    )
    sizes = {"n": 1, "o": o, "h": h, "w": h, "r": 3, "s": 3, "g": GROUPS, "c": c // GROUPS}
    return text, {**sizes, "d": o // GROUPS // SHRINK}


def _operator1_as_convolutions(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Both stages as convolutions: the first makes one channel for each tap of the row window."""
    d, c, s = a.shape
    o, r, _, g, _ = b.shape
    taps = a.reshape(d, g, c // g, s).permute(1, 0, 3, 2)  # g, d, s, c/g
    first = torch.diag_embed(taps.permute(0, 1, 3, 2))  # g, d, c/g, s (channel), s (tap)
    first = first.permute(0, 1, 3, 2, 4).reshape(g * d * s, c // g, 1, s)
    t = F.conv2d(x, first, padding=(0, s // 2), groups=g)
    second = b.permute(0, 3, 4, 2, 1).reshape(o, g * d * s, r, 1)
    return F.conv2d(t, second, padding=(r // 2, 0))


def _operator1_as_einsum(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    d, c, s = a.shape
    _, r, _, g, _ = b.shape
    n, _, h, w = x.shape
    rows = F.pad(x, (s // 2, s // 2)).unfold(3, s, 1).reshape(n, g, c // g, h, w, s)
    t = torch.einsum("ngchws,dgcs->ngdshw", rows, a.reshape(d, g, c // g, s))
    columns = F.pad(t, (0, 0, r // 2, r // 2)).unfold(4, r, 1)
    return torch.einsum("ngdshwr,orsgd->nohw", columns, b)


CASES = (
    Case("conv3x3", _conv(3), {"conv2d": lambda x, k: F.conv2d(x, k, padding=1)}),
    Case("conv1x1", _conv(1), {"conv2d": lambda x, k: F.conv2d(x, k[:, :, None, None])}),
    Case("grouped3x3", _grouped, {"conv2d": lambda x, k: F.conv2d(x, k, padding=1, groups=GROUPS)}),
    Case(
        "dilated3x3",
        _conv(3, 2),
        {"conv2d": lambda x, k: F.conv2d(x, k, padding=2, dilation=2)},
    ),
    Case(
        "depthwise3x3",
        _depthwise,
        {"conv2d": lambda x, k: F.conv2d(x, k[:, None], padding=1, groups=k.shape[0])},
    ),
    Case(
        "separable3x3",
        _separable,
        {
            "conv2d": lambda x, k, p: F.conv2d(
                F.conv2d(x, k[:, None], padding=1, groups=k.shape[0]), p[:, :, None, None]
            )
        },
    ),
    Case("average_pool", _average_pool, {"avg_pool2d": lambda x: F.avg_pool2d(x, 2)}),
    Case("pixel_shuffle", _pixel_shuffle, {"pixel_shuffle": lambda x: F.pixel_shuffle(x, 2)}),
    Case("matmul", _matmul, {"matmul": torch.matmul}),
    Case(
        "operator1",
        _operator1,
        {"conv2d": _operator1_as_convolutions, "einsum": _operator1_as_einsum},
    ),
)


def run_case(
    case: Case, valuation: tuple[int, int, int], *, threads: int, turns: int, compile: bool
) -> dict[str, object]:
    """Verifies and times one operator at one size."""
    text, sizes = case.formula(*valuation)
    operator = syno.Operator.parse(text, **sizes)
    kernel = operator.compile(threads=threads)
    check = kernel.verify(seed=1)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(operator.shapes[n], generator=generator) for n in operator.inputs]
    out = torch.empty(operator.shapes[operator.outputs[0]])
    pointers = [t.data_ptr() for t in (*inputs, out)]
    contestants: dict[str, Callable[[], object]] = {
        "syno": lambda: kernel.call_pointers(pointers, threads)
    }
    emitted = written_module(operator)
    weights = dict(zip(operator.weights, inputs[len(operator.data) :], strict=True))
    for parameter, value in zip(emitted.parameters(), weights.values(), strict=True):
        parameter.data.copy_(value)
    data = inputs[: len(operator.data)]
    forms: dict[str, Callable[[], Tensor]] = {"emitted": lambda: emitted(*data)}
    for name, form in case.forms.items():
        forms[name] = _bound(form, inputs)
        if data[0].dim() == 4:
            last = [t.to(memory_format=torch.channels_last) if t.dim() == 4 else t for t in inputs]
            forms[f"{name}, channels last"] = _bound(form, last)
    if compile:
        for name in list(case.forms):
            frozen = torch.compile(case.forms[name])
            forms[f"{name}, torch.compile"] = _bound(frozen, inputs)
    kernel.call_pointers(pointers, threads)
    scale = float(out.abs().max())
    for name, form in forms.items():
        worst = float((form() - out).abs().max())
        if worst > 1e-4 * max(scale, 1e-6):
            raise SystemExit(f"{case.name} as {name} differs from the kernel by {worst}")
    contestants.update(forms)
    timings = {t.name: t for t in measure(contestants, turns=turns, threads=threads)}
    best = min(forms, key=lambda name: timings[name].median_us)
    ours = timings["syno"]
    return {
        "name": case.name,
        "valuation": dict(zip(("C_in", "C_out", "H"), valuation, strict=True)),
        "expr": operator.expr,
        "flops": operator.flops,
        "us": ours.median_us,
        "iqr_us": ours.iqr_us,
        "gflops": 2e-3 * operator.flops / ours.median_us,
        "forms_us": {name: timings[name].median_us for name in forms},
        "best_form": best,
        # Speed-ups refer to the kernel, so the best form's is (kernel / form) turn by turn.
        "ratio": 1 / timings[best].speed_up,
        "verified": check.passed,
        "max_rel_err": check.max_rel_err,
    }


def _bound(form: Form, inputs: list[Tensor]) -> Callable[[], Tensor]:
    return lambda: form(*inputs)


def run(
    names: list[str], *, threads: int, turns: int, compile: bool
) -> Iterator[dict[str, object]]:
    """All chosen cases, one result after the other."""
    torch.set_num_threads(threads)
    with torch.inference_mode():
        for case in CASES:
            if not names or case.name in names:
                for valuation in VALUATIONS:
                    yield run_case(case, valuation, threads=threads, turns=turns, compile=compile)


def main() -> None:
    """Prints a table, or one JSON document with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="*", default=[], choices=[case.name for case in CASES])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--compile", action="store_true", help="time torch.compile as well")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for row in run(
        options.names, threads=options.threads, turns=options.turns, compile=options.compile
    ):
        results.append(row)
        if not options.json:
            sizes = "{C_in:>4} {C_out:>4} {H:>3}".format(**row["valuation"])
            print(
                f"{row['name']:14} {sizes}  {significant(row['us']):>9} us  {significant(row['gflops']):>6} GFLOP/s  "
                f"{row['ratio']:5.2f}x of {row['best_form']}  error {row['max_rel_err']:.1e}",
                flush=True,
            )
    ratios = np.array([row["ratio"] for row in results])
    summary = {
        "machine": msgspec.to_builtins(describe_machine()),
        "threads": options.threads,
        "command": "python benchmarks/operators.py " + " ".join(sys.argv[1:]),
        "cases": results,
        "geomean": math.exp(float(np.log(ratios).mean())) if results else None,
        "lowest": float(ratios.min()) if results else None,
    }
    if options.json:
        print(json.dumps(summary, indent=1))
    else:
        print(f"geomean {summary['geomean']:.2f}x, lowest {summary['lowest']:.2f}x")


if __name__ == "__main__":
    main()
