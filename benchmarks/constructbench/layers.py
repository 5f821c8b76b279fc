"""Forty further layers, their channels and images divided so that one core constructs and runs them in seconds."""

from __future__ import annotations

from constructbench.cases import PAPER, UNBALANCED, Case


def conv(
    name: str,
    c: int,
    o: int,
    size: int,
    kernel: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    batch: int = 1,
    scaled: str = "",
) -> Case:
    """A 2-D convolution with padding that keeps the image's size at stride 1."""
    pad, out = dilation * (kernel - 1) // 2, (size - 1) // stride + 1

    def place(at: str, tap: str) -> str:
        moved = at if stride == 1 else f"{stride}*{at}"
        taps = tap if dilation == 1 else f"{dilation}*{tap}"
        return f"{moved}+{taps}" + (f"-{pad}" if pad else "") if kernel > 1 else moved

    row, column = place("h", "r"), place("w", "s")
    sizes = {"n": batch, "h": out, "w": out}
    taps, index, k = "", "", ""
    if kernel > 1:
        taps, k = ",r,s", ",r,s"
        sizes |= {"r": kernel, "s": kernel}
    if groups == c:
        expr = f"y[n,c,h,w] = sum[{taps[1:]}] x[n,c,{row},{column}] * k[c{k}]"
        return Case(name, expr, sizes | {"c": c}, scaled, {"x": (batch, c, size, size)})
    if groups > 1:
        index = "g,"
        sizes |= {"g": groups}
    expr = f"y[n,{index}o,h,w] = sum[c{taps}] x[n,{index}c,{row},{column}] * k[{index}o,c{k}]"
    shape = (batch, *((groups,) if groups > 1 else ()), c // groups, size, size)
    return Case(name, expr, sizes | {"o": o // groups, "c": c // groups}, scaled, {"x": shape})


def product(name: str, m: int, k: int, n: int, *, batch: int = 0, transposed: bool = False) -> Case:
    """A matrix product, of a batch of them, the second operand transposed as in a linear layer."""
    b = "b[n,k]" if transposed else "b[k,n]"
    sizes = {"m": m, "k": k, "n": n}
    if not batch:
        return Case(name, f"y[m,n] = sum[k] a[m,k] * {b}", sizes)
    return Case(name, f"y[i,m,n] = sum[k] a[i,m,k] * {b.replace('[', '[i,')}", sizes | {"i": batch})


def along(name: str, c: int, o: int, size: int, kernel: int, dilation: int = 1) -> Case:
    """A 1-D convolution."""
    step = "t" if dilation == 1 else f"{dilation}*t"
    return Case(
        name,
        f"y[o,x] = sum[c,t] a[c,x+{step}] * k[o,c,t]",
        {"o": o, "c": c, "x": size, "t": kernel},
        "",
        {"a": (c, size + dilation * (kernel - 1))},
    )


def volume(name: str, c: int, o: int, depth: int, size: int) -> Case:
    """A 3-D convolution with 3 x 3 x 3 taps."""
    return Case(
        name,
        "y[o,d,h,w] = sum[c,q,r,s] x[c,d+q-1,h+r-1,w+s-1] * k[o,c,q,r,s]",
        {"o": o, "c": c, "d": depth, "h": size, "w": size, "q": 3, "r": 3, "s": 3},
    )


HALF = "channels / 2"
#: From ResNets, VGG, MobileNets, EfficientNet, ResNeXt, DeepLab, Inception, R3D, WaveNet, BERT, GPT-2, ViT and DLRM.
LAYERS = (
    conv("resnet stem", 3, 64, 112, 7, stride=2, scaled="image / 2"),
    conv("resnet 56", 64, 64, 56, 3),
    conv("resnet 28", 128, 128, 28, 3),
    conv("resnet 14", 256, 256, 14, 3),
    conv("resnet 7", 256, 256, 7, 3, scaled=HALF),
    conv("resnet 56 s2", 64, 128, 56, 3, stride=2),
    conv("resnet 28 s2", 128, 256, 28, 3, stride=2),
    conv("resnet 1x1 s2", 64, 128, 56, 1, stride=2),
    conv("bottleneck 64-256", 64, 256, 56, 1),
    conv("bottleneck 256-64", 256, 64, 56, 1),
    conv("bottleneck 512-128", 512, 128, 28, 1),
    conv("bottleneck 1024-256", 1024, 256, 14, 1),
    conv("bottleneck 2048-512", 1024, 256, 7, 1, scaled=HALF),
    conv("vgg 112", 32, 64, 112, 3, scaled=HALF),
    conv("vgg 14", 256, 256, 14, 3, batch=4, scaled=HALF),
    conv("mobile dw 112", 32, 32, 112, 3, groups=32),
    conv("mobile dw 14", 384, 384, 14, 3, groups=384),
    conv("mobile dw 28 s2", 192, 192, 28, 3, stride=2, groups=192),
    conv("efficient dw 5x5", 240, 240, 28, 5, groups=240),
    conv("mobile expand", 32, 192, 28, 1),
    conv("mobile project", 192, 32, 28, 1),
    conv("resnext 32 groups", 256, 256, 28, 3, groups=32),
    conv("resnext 4 groups", 128, 128, 14, 3, groups=4),
    conv("deeplab d2", 128, 128, 28, 3, dilation=2, scaled=HALF),
    conv("deeplab d6", 128, 64, 28, 3, dilation=6, scaled=HALF),
    conv("inception 5x5", 48, 64, 28, 5),
    volume("r3d 3x3x3", 32, 32, 8, 28),
    volume("r3d deep", 64, 64, 4, 14),
    along("wavenet d4", 64, 64, 1024, 2, 4),
    along("conv1d 9", 128, 128, 384, 9),
    product("bert qkv", 128, 768, 2304),
    product("bert ffn", 128, 768, 3072, transposed=True),
    product("gpt one row", 1, 768, 3072),
    product("vit ffn out", 196, 1536, 384),
    product("dlrm bottom", 256, 13, 512),
    product("classifier", 8, 2048, 1000, transposed=True),
    product("scores", 128, 64, 128, batch=12, transposed=True),
    product("attend", 128, 128, 64, batch=12),
    product("tall", 4096, 128, 32),
    product("deep", 64, 8192, 64),
)

#: All cases that policies are compared on.
ALL = (*PAPER, *UNBALANCED, *LAYERS)
