"""Templates of layouts: random convolutions and products in random choices compute what they did; what does not fit is said."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from syno import _core
from syno.errors import ArgumentError, ParseError, ScheduleError, UnknownName
from syno.machines.model import machine_model
from syno.tuning.layouts.instance import Instance
from syno.tuning.layouts.space import LoopSpace
from syno.tuning.layouts.template import Template, nearest

# Operators


def convolution(
    rank: int, batch: int, channels: tuple[int, int], image: Sequence[int], kernel: Sequence[int], stride: int,
    dilation: int, groups: int = 1, bias: bool = False,
) -> _core.Program:  # fmt: skip
    """y = x * k, padded by half of what a window covers."""
    made, given = channels
    spatial = "dhw"[3 - rank :]
    window = "qrs"[3 - rank :]
    reach = [dilation * (size - 1) for size in kernel]
    results = [(n + 2 * (r // 2) - r - 1) // stride + 1 for n, r in zip(image, reach, strict=True)]
    where = [
        f"{stride}*{i}+{dilation}*{r}-{c // 2}"
        for i, r, c in zip(spatial, window, reach, strict=True)
    ]
    channel = "c" if groups == 1 else f"{given // groups}*(o/{made // groups})+c"
    sizes = dict(zip(spatial, results, strict=True)) | dict(zip(window, kernel, strict=True))
    text = (
        f"{'t' if bias else 'y'}[n,o,{','.join(spatial)}] = "
        f"sum[c,{','.join(window)}] x[n,{channel},{','.join(where)}] * k[o,c,{','.join(window)}]"
    )
    if bias:
        text += f"; y[n,o,{','.join(spatial)}] = relu(t[n,o,{','.join(spatial)}] + b[o])"
    shapes = {"x": [batch, given, *image], "k": [made, given // groups, *kernel]}
    if bias:
        shapes["b"] = [made]
    return _core.Program.parse(text, shapes=shapes, sizes={**sizes, "n": batch})


def transposed() -> _core.Program:
    text = "y[n,o,h] = sum[c,r] x[n,c,(h+1-r)/2 + inside((h+1-r)%2, 1)] * k[c,o,r]"
    return _core.Program.parse(text, shapes={"x": [1, 4, 6], "k": [4, 8, 3]}, sizes={"h": 12})


def product(batch: Sequence[int], m: int, n: int, k: int, turned: bool) -> _core.Program:
    outer = "pq"[: len(batch)]
    lead = "".join(f"{name}," for name in outer)
    weight = "b[n,k]" if turned else "b[k,n]"
    return _core.Program.parse(
        f"y[{lead}m,n] = sum[k] a[{lead}m,k] * {weight}",
        shapes={"a": [*batch, m, k], "b": [n, k] if turned else [k, n]},
    )


def drawn(rng: random.Random) -> _core.Program:
    if rng.random() < 0.3:
        batch = [2, 3][: rng.choice((0, 0, 1, 2))]
        return product(
            batch,
            rng.choice((4, 6, 7)),
            rng.choice((4, 12)),
            rng.choice((5, 8)),
            rng.random() < 0.5,
        )
    rank = rng.choice((1, 2, 2, 3))
    groups = rng.choice((1, 1, 2, 4))
    made, given = groups * rng.choice((1, 2, 4)), groups * rng.choice((1, 3, 4))
    if rng.random() < 0.2:  # depthwise
        groups = made = given = rng.choice((4, 6))
    return convolution(
        rank, rng.choice((1, 2)), (made, given), [rng.choice((6, 8, 9)) for _ in range(rank)],
        [rng.choice((1, 2, 3)) for _ in range(rank)], rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2)), groups,
        rng.random() < 0.3,
    )  # fmt: skip


def any_choice(template: Template, rng: random.Random) -> Instance:
    tiles = {}
    for parameter in template.parameters:
        tile: list[int] = []
        left = parameter.extent
        for _ in range(template.levels):
            tile.append(rng.choice([n for n in range(1, left + 1) if left % n == 0]))
            left //= tile[-1]
        tiles[parameter.name] = tuple(tile)
    return Instance(template.kind, tiles)


def values(program: _core.Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-8, 9, program.shape(name)).astype(float) for name in program.inputs}


def laid(program: _core.Program, layouts: dict[str, str]) -> _core.Program:
    for name, layout in layouts.items():
        argument = name in (*program.inputs, *program.outputs)
        program = _core.laid_out(program, name, layout, f"{name}_l" if argument else "")
    return program


@pytest.mark.parametrize("seed", range(60))
def test_a_choice_keeps_what_an_operator_computes(seed: int) -> None:
    rng = random.Random(seed)
    program = drawn(rng)
    template = Template(program, levels=rng.choice((1, 2)))
    choice = any_choice(template, rng)
    assert Instance.parse(str(choice)) == choice
    layouts = template.layouts(choice)
    after = laid(program, layouts)
    inputs = values(program, seed)
    expected, found = program.interpret(inputs), after.interpret(inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(
            found[name], array, err_msg=f"{program.text()}\n{choice} {layouts}"
        )


def test_all_kinds_are_drawn() -> None:
    """What the property above is of: windows that overlap, groups, strides, dilations, two levels, products."""
    seen: set[str] = set()
    for seed in range(60):
        rng = random.Random(seed)
        program = drawn(rng)
        template = Template(program, levels=rng.choice((1, 2)))
        layouts = template.layouts(any_choice(template, rng))
        seen |= {template.kind, f"rank {len(template.axes.rows)}", f"levels {template.levels}"}
        seen |= {word for word in ("unfold", "pad", "split", "reorder") if word in str(layouts)}
    assert seen >= {"convolution", "product", "rank 1", "rank 2", "rank 3", "levels 1", "levels 2"}
    assert seen >= {"unfold", "pad", "split", "reorder"}


def test_the_papers_templates() -> None:
    """C2D and GMM as they stand in ALT §5.1, tiled in every dimension."""
    template = Template(convolution(2, 1, (32, 16), (8, 12), (3, 3), 1, 1))
    assert [p.name for p in template.parameters] == ["h", "w", "o", "i", "ki", "ko"]
    layouts = template.layouts(Instance.parse("convolution(h=4, w=6, o=16, i=8, ki=4, ko=8)"))
    shapes = {
        name: _core.laid_out(template.program, name, text).shape(name)
        for name, text in layouts.items()
    }
    assert shapes["y"] == [1, 2, 2, 2, 4, 6, 16], "N H/h W/w O/o h w o"
    assert shapes["x"] == [1, 2, 2, 2, 6, 8, 8], "N H/h W/w I/i (h+KH-1) (w+KW-1) i"
    assert shapes["k"] == [4, 4, 3, 3, 4, 8], "O/ko I/ki KH KW ki ko"
    two = Template(convolution(2, 1, (32, 16), (8, 12), (3, 3), 1, 1), levels=2)
    layouts = two.layouts(Instance.parse("convolution(h=2x2, w=2x3, o=2x8, i=2x4, ki=1x4, ko=2x8)"))
    assert _core.laid_out(two.program, "y", layouts["y"]).shape("y") == [
        1,
        2,
        2,
        2,
        2,
        2,
        2,
        2,
        3,
        8,
    ]
    gmm = Template(product((), 8, 12, 16, False))
    assert [p.name for p in gmm.parameters] == ["m", "n", "k"]
    layouts = gmm.layouts(Instance.parse("product(m=4, n=6, k=8)"))
    shapes = {
        name: _core.laid_out(gmm.program, name, text).shape(name) for name, text in layouts.items()
    }
    assert shapes == {"y": [2, 2, 4, 6], "a": [2, 2, 4, 8], "b": [2, 2, 8, 6]}


def test_windows_of_strides_and_dilations_unfold_as_wide_as_they_reach() -> None:
    """B = V(h-1) + M and S = V*h, of the digest's proof; M = (KH-1)*dilation + 1."""
    program = _core.Program.parse(
        "y[n,o,h] = sum[c,r] x[n,c,2*h+3*r] * k[o,c,r]",
        shapes={"x": [1, 4, 21], "k": [4, 4, 3]},
        sizes={"h": 8},
    )
    text = Template(program).layouts(Instance.parse("convolution(w=4, o=4, i=4, ki=4, ko=4)"))["x"]
    assert text == "unfold(2, 13, 8) reorder(0, 2, 3, 1)"


def test_what_moves_with_the_output_lies_as_it_does() -> None:
    template = Template(convolution(2, 1, (8, 4), (6, 6), (3, 3), 1, 1, bias=True))
    layouts = template.layouts(Instance.parse("convolution(h=3, w=2, o=4, i=4, ki=4, ko=8)"))
    assert layouts["t"] == layouts["y"] and set(layouts) == {"t", "y", "x", "k"}


def test_a_transposed_convolution_keeps_its_datas_rows_whole() -> None:
    program = transposed()
    template = Template(program)
    layouts = template.layouts(Instance.parse("convolution(w=4, o=4, i=2, ki=2, ko=8)"))
    assert "unfold" not in layouts["x"] and "split(2, 3, 4)" in layouts["y"]
    after, inputs = laid(program, layouts), values(program, 0)
    np.testing.assert_array_equal(after.interpret(inputs)["y"], program.interpret(inputs)["y"])


def test_what_a_choice_may_not_say() -> None:
    template = Template(product((), 8, 12, 16, False))
    for text, error, message in (
        ("product(m=4, n=6, k=8, h=2)", UnknownName, "parameter of this product 'h'.*k, m, n"),
        ("convolution(h=2)", UnknownName, "template of this operator 'convolution'.*product"),
        ("product(m=3, n=6, k=8)", ArgumentError, "m=3 does not divide 8.*1, 2, 4, 8"),
        ("product(m=4, n=6)", ArgumentError, "says nothing of k.*k=16"),
        ("product(m=2x2, n=6, k=8)", ArgumentError, "m=2x2 has 2 level"),
        ("product(m=4, m=4)", ParseError, "twice"),
        ("product(m=0)", ParseError, "'m=0'.*no 'name=number'"),
        ("product m=4", ParseError, "no choice of layouts"),
        ("softmax(m=4)", UnknownName, "convolution, product"),
    ):  # fmt: skip
        with pytest.raises(error, match=f"(?s){message}"):
            template.check(Instance.parse(text))
    with pytest.raises(ArgumentError, match="levels=3"):
        Template(template.program, levels=3)


@pytest.mark.parametrize(
    ("text", "shapes", "why"),
    [
        ("y[i] = x[i] + 1", {"x": [4]}, "0 sums of products"),
        ("y[i] = sum[j] x[i,j]", {"x": [4, 4]}, "0 sums of products"),
        ("y[i] = sum[j] x[i,j] * x[j,i]", {"x": [4, 4]}, "of two tensors"),
        ("y[i,j] = sum[k] a[i,k] * b[k,j]; z[i,j] = sum[k] y[i,k] * b[k,j]", {"a": [4, 4], "b": [4, 4]}, "2 sums"),
        ("y[i] = sum[k] a[i,k] * b[i,k]", {"a": [4, 4], "b": [4, 4]}, "one of the two tensors alone"),
    ],
)  # fmt: skip
def test_an_operator_without_a_template_is_refused(
    text: str, shapes: dict[str, list[int]], why: str
) -> None:
    with pytest.raises(ScheduleError, match=f"(?s){why}.*convolution and product"):
        Template(_core.Program.parse(text, shapes=shapes))


def test_the_nearest_divisor_is_nearest_in_ratio() -> None:
    assert [nearest(32, 32 * a) for a in (0.5, 0.01, 0.99, 0.3)] == [16, 1, 32, 8]
    assert nearest(7, 3) == 7 and nearest(7, 2.5) == 1
    assert all(n % nearest(n, math.sqrt(n)) == 0 for n in range(1, 50))


def test_the_state_holds_the_factors_of_all_primitives() -> None:
    template = Template(convolution(1, 1, (32, 16), (8,), (3,), 1, 1))
    choice = Instance.parse("convolution(w=4, o=16, i=16, ki=16, ko=32)")
    assert template.state(choice, 0) == [1, 8, 1, 32, 1, 16, 1, 16, 1, 32, 1, 10]
    assert template.state(choice, 2) == [2, 4, 2, 16, 1, 16, 1, 16, 1, 32, 2, 6]


@pytest.mark.parametrize("seed", range(12))
def test_schedules_of_loops_are_schedules_of_the_whole(seed: int) -> None:
    """Copies within calls, before calls, and what is said to lie so already: all compute the operator."""
    rng = random.Random(1000 + seed)
    program = drawn(rng)
    template = Template(program)
    layouts = template.layouts(any_choice(template, rng))
    weight = template.axes.weight
    constants = [weight] if seed % 2 else []
    free = [template.axes.data] if seed % 3 == 0 else []
    space = LoopSpace(
        program,
        layouts,
        machine_model(),
        dtype="float64",
        threads=1,
        constants=constants,
        free=free,
    )
    wholes = [space.whole(candidate.schedule) for candidate in space.starts()[:2]]
    assert wholes and None not in wholes, f"{program.text()} {layouts}"
    for whole in wholes:
        assert whole is not None and _core.Schedule.parse(whole.text()) == whole
        nest = _core.apply_schedule(space.program, whole)
        assert _core.compile_nest(nest).verify(space.program).passed
        nests = _core.apply_prepacked(space.program, whole)
        assert nests is not None or not constants or weight not in layouts
        if nests is not None:
            prepack, call = (_core.compile_nest(nest) for nest in nests)
            assert _core.verify_prepacked(prepack, call, space.program).passed
