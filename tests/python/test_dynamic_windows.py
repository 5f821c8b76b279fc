"""Windows over images whose size a call brings along: right at every size, without conditions where they lie inside."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch
from machines import written_machine
from torch import nn

import syno
from syno import _core
from syno.machines.model import fixed_kernels


def layer(seed: int) -> tuple[nn.Module, int, tuple[int, int]]:
    """A random convolution or pooling, its channels, and a range of sizes that it can have."""
    draw = random.Random(seed)
    kernel = draw.choice([1, 2, 3, 3, 5, 7])
    stride, dilation = draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 1, 2])
    padding = draw.choice([0, kernel // 2, kernel // 2 * dilation])
    least = draw.choice([1, 4, 9, 30]) + dilation * (kernel - 1)
    channels = draw.choice([3, 8, 24])
    torch.manual_seed(seed)
    if draw.random() < 0.3:
        pool = draw.choice([nn.MaxPool2d, nn.AvgPool2d])
        made: nn.Module = pool(kernel, stride, min(padding, kernel // 2))
    else:
        groups = draw.choice([1, 1, channels])
        made = nn.Conv2d(
            channels, 2 * channels, kernel, stride, padding, dilation=dilation, groups=groups
        )
    return (
        nn.Sequential(made, nn.ReLU()).eval(),
        channels,
        (least, least + draw.choice([5, 17, 33])),
    )


def expect_right_at_every_size(
    model: nn.Module, channels: int, low: int, high: int, tolerance: float = 2e-4
) -> None:
    example = torch.randn(1, channels, high, high)
    fast = syno.compile(model, example, dynamic={0: {2: ("n", low, high), 3: ("n", low, high)}})
    for size in range(low, high + 1):
        x = torch.randn(1, channels, size, size)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", range(8))
def test_windows_are_right_at_every_size(seed: int) -> None:
    model, channels, (low, high) = layer(seed)
    expect_right_at_every_size(model, channels, low, high)


@pytest.mark.parametrize(
    ("model", "channels", "low", "high"),
    [
        (nn.MaxPool2d(3, 2, 1), 4, 30, 75),  # rows of vectors that lie apart, under masks
        (nn.Conv2d(24, 24, 5, 2, 2, groups=24), 24, 24, 73),  # from a padded copy
        (nn.Conv2d(64, 64, 3, 1, 1), 64, 1, 9),  # one tile holds a row
        (nn.Conv2d(64, 64, 1, 2), 64, 3, 18),
        (nn.Conv2d(64, 64, 3, 2, 1), 64, 3, 18),
    ],
    ids=["pool", "depthwise", "one tile", "every second", "strided"],
)
def test_windows_that_lie_apart_or_fill_one_tile(
    model: nn.Module, channels: int, low: int, high: int
) -> None:
    expect_right_at_every_size(model.eval(), channels, low, high)


def test_a_tile_that_holds_a_row_asks_nothing_of_its_elements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nests = texts_of_calls(monkeypatch)
    model = nn.Conv2d(64, 24, 3, 1, 1).eval()
    # Four sums for each vector of channels: a tile that the registers of any CPU hold. Which tile is thought the best
    # depends on the machine; on this one it is that.
    dynamic = {0: {2: ("n", 2, 4), 3: ("n", 2, 4)}}
    with fixed_kernels(written_machine().to_json()):
        syno.compile(model, torch.randn(1, 64, 4, 4), dynamic=dynamic)
    assert nests
    for text in nests:
        # Code for each number of elements: where two are there, no third one is computed.
        alone = re.search(
            r"if [^\n]*size_1[^\n]* in 2\.\.3\n(.*?)\n *if [^\n]* in 3\.\.4", text, re.S
        )
        assert alone, text
        rows = re.findall(r"for w\w* in 0\.\.(\d+) unroll", alone[1])
        assert rows and set(rows) == {"2"}, alone[1]


def texts_of_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The loop nests of calls that are made from now on."""
    nests: list[str] = []
    real = _core.apply_prepacked

    def seen(*arguments: Any) -> Any:
        made = real(*arguments)
        if len(arguments) > 2 and made is not None:
            nests.append(str(made[1].text()))
        return made

    monkeypatch.setattr(_core, "apply_prepacked", seen)
    return nests


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_inside_a_row_nothing_is_asked(
    stride: int, dilation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nests = texts_of_calls(monkeypatch)
    model = nn.Conv2d(64, 64, 3, stride, dilation, dilation=dilation).eval()
    dynamic = {0: {2: ("n", 48, 144), 3: ("n", 48, 144)}}
    with fixed_kernels(written_machine().to_json()):  # which packs the weights, others need not
        syno.compile(model, torch.randn(1, 64, 144, 144), dynamic=dynamic)
    assert nests
    for text in nests:
        # The loop over tiles of a row that begins behind the first one: from there on no window touches a border.
        inside = re.split(r"\n( *)for \w+ in 1\.\.\(?size_1[^\n]*\n", text)
        assert len(inside) >= 3, text
        indent, body = inside[1], inside[2]
        lines = body.split("\n")
        end = next(
            i for i, line in enumerate(lines) if len(line) - len(line.lstrip()) <= len(indent)
        )
        sums = [line for line in lines[:end] if "+=" in line]
        assert sums
        assert not any("{" in line for line in sums), sums
        # Rows of padding are left out whole: the one question that is left, asked around the columns. Where sums go
        # on from block to block of channels, the first block is another one.
        asked = [line.strip() for line in lines[:end] if line.strip().startswith("if ")]
        asked = [line for line in asked if not re.fullmatch(r"if c_o in \d+\.\.\d+", line)]
        assert all("r + " in line or "2 * r" in line for line in asked), asked


ROWS = """
nest rows
parameter w in 33..65
input x: f32[18, w + 2]
input k: f32[3, 3]
output y: f32[16, w]
register acc: f32[16, 16]
for w_o in 0..w / 16
  allocate acc
    for h_i in 0..16 unroll
      for w_i in 0..16 vector
        acc[h_i, w_i] = 0
    for s in 0..3
      for h_i in 0..16 unroll
        for r in 0..3 unroll
          for w_i in 0..16 vector
            acc[h_i, w_i] += x[h_i + r, 16 * w_o + w_i + s] * k[r, s]
    for h_i in 0..16 unroll
      for w_i in 0..16 vector
        y[h_i, 16 * w_o + w_i] = acc[h_i, w_i]
"""


def test_the_rows_of_a_window_need_no_pointers_of_their_own() -> None:
    """The length of a row comes with a call: where each of the eighteen rows that a tile reads had a pointer, computed ahead of
    the loops, most of them lay on the stack and were fetched at each use."""
    cpu = _core.cpu_named("x86-64-v4", "x86_64-linux-gnu")
    nest = _core.LoopNest.parse(ROWS.lstrip())
    made = _core.compile_nest(nest, cpu=cpu)
    (loop,) = (each for each in made.innermost_loops if each.multiply_adds > 40)
    assert loop.loads == 18 + 3, made.assembly()


@pytest.mark.parametrize("seed", range(6))
def test_windows_whose_rows_and_columns_follow_a_call(seed: int) -> None:
    """Height and width of their own, tiles of several rows, at random sizes: as kernels of one size."""
    draw = random.Random(seed)
    kernel, padding = draw.choice([(2, 0), (3, 1), (3, 0), (5, 2)])
    body = draw.choice(["x[c,h+r-P,w+s-P] * k[c,r,s]", "x[c,2*h+r-P,2*w+s-P] * k[c,r,s]"])
    text = f"y[c,h,w] = sum[r,s] {body}".replace("P", str(padding))
    ranges = {"h": (draw.choice([3, 9]), 24), "w": (draw.choice([3, 17]), 40)}
    sizes = {"c": draw.choice([1, 3]), "r": kernel, "s": kernel, "h": 24, "w": 40}
    dynamic = syno.Operator.parse(text, **sizes).compile(dynamic=ranges, cache=False)
    assert not dynamic.by_size
    for _ in range(4):
        own = {**sizes, **{name: draw.randint(*ends) for name, ends in ranges.items()}}
        static = syno.Operator.parse(text, **own)
        arrays = [torch.randn(static.shapes[name]) for name in static.inputs]
        torch.testing.assert_close(dynamic(*arrays), static.compile(cache=False)(*arrays))
