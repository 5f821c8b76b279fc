"""The operators that the Gensor paper discloses (Table IV) and its unbalanced products (Table V).

Sizes beyond a CPU core's memory or patience are divided, and the name says by what.
"""

from __future__ import annotations

from dataclasses import dataclass

import syno


@dataclass(frozen=True)
class Case:
    """One operator; `scaled` says what was divided, empty for the paper's own size."""

    name: str
    expr: str
    sizes: dict[str, int]
    scaled: str = ""
    shapes: dict[str, tuple[int, ...]] | None = None

    def operator(self) -> syno.Operator:
        more = {"shapes": self.shapes} if self.shapes else {}
        return syno.Operator.parse(self.expr, **self.sizes, **more)


def _conv(name: str, n: int, c: int, h: int, o: int, stride: int, scaled: str) -> Case:
    out = (h - 3) // stride + 1
    row, column = ("h+r", "w+s") if stride == 1 else (f"{stride}*h+r", f"{stride}*w+s")
    return Case(
        name,
        f"y[n,o,h,w] = sum[c,r,s] x[n,c,{row},{column}] * k[o,c,r,s]",
        {"n": n, "o": o, "c": c, "h": out, "w": out, "r": 3, "s": 3},
        scaled,
        {"x": (n, c, h, h)},
    )


def _gemm(name: str, m: int, k: int, n: int, scaled: str = "") -> Case:
    sizes = {"m": m, "n": n, "k": k}
    return Case(name, "y[m,n] = sum[k] a[m,k] * b[k,n]", sizes, scaled)


def _gemv(name: str, m: int, n: int, scaled: str) -> Case:
    return Case(name, "y[m] = sum[n] a[m,n] * x[n]", {"m": m, "n": n}, scaled)


def _pool(name: str, n: int, c: int, h: int, f: int, scaled: str) -> Case:
    out = (h - f) // 2 + 1
    return Case(
        name,
        "y[n,c,h,w] = mean[r,s] x[n,c,2*h+r,2*w+s]",
        {"n": n, "c": c, "h": out, "w": out, "r": f, "s": f},
        scaled,
        {"x": (n, c, h, h)},
    )


#: Table IV: labels as in the paper.
PAPER = (
    _conv("C1", 16, 256, 30, 256, 2, "batch 128 -> 16"),
    _conv("C2", 16, 128, 28, 128, 1, "batch 128 -> 16"),
    _conv("C3", 16, 128, 58, 128, 2, "batch 128 -> 16"),
    _gemm("M1", 1024, 1024, 1024, "8192^3 -> 1024^3"),
    _gemm("M2", 65536, 4, 1024),
    _gemm("M3", 512, 1024, 4096, "M 65536 -> 512"),
    _gemv("V1", 16384, 16384, ""),
    _gemv("V2", 16384, 8192, ""),
    _gemv("V3", 16384, 1000, ""),
    _pool("P1", 16, 48, 48, 2, ""),
    _pool("P2", 16, 168, 83, 2, "batch 128 -> 16"),
    _pool("P3", 16, 617, 21, 3, "batch 128 -> 16"),
)

#: Table V: [M, K, N].
UNBALANCED = (
    _gemm("[65536,4,1024]", 65536, 4, 1024),
    _gemm("[32768,64,2048]", 8192, 64, 2048, "M 32768 -> 8192"),
    _gemm("[16384,32,1024]", 16384, 32, 1024),
)
