"""Functions of shapes as nodes: the same elements as PyTorch's, on random shapes and attributes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graph_checks import computed, same, shape_of, tensor

from syno.errors import ShapeError, SynoError
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import shapes
from syno.graph.functions.tables import as_index

SEEDS = range(12)


def split_randomly(rng: np.random.Generator, count: int) -> list[int]:
    """A random shape of this many elements."""
    shape: list[int] = []
    while count > 1:
        divisors = [d for d in range(1, count + 1) if count % d == 0]
        shape.append(int(rng.choice(divisors)))
        count //= shape[-1]
    return [*shape, *[1] * int(rng.integers(0, 2))]


@pytest.mark.parametrize("seed", SEEDS)
def test_reshaped_tensors_keep_their_elements_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(4):
        count = int(rng.choice([1, 6, 12, 24, 30, 36, 48, 60]))
        source, target = split_randomly(rng, count), split_randomly(rng, count)
        x = tensor(rng, *source)
        same(computed(lambda b, v, t=target: shapes.reshape(b, v, t), x), x.reshape(target))
        if target:
            wanted = list(target)
            wanted[int(rng.integers(len(target)))] = -1
            same(computed(lambda b, v, t=wanted: shapes.reshape(b, v, t), x), x.reshape(wanted))


@pytest.mark.parametrize("seed", SEEDS)
def test_views_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    x = tensor(rng, *shape_of(rng, rank))
    order = [int(d) - rank * int(rng.integers(2)) for d in rng.permutation(rank)]
    same(computed(lambda b, v: shapes.permute(b, v, order), x), x.permute(order))
    a, c = (int(d) for d in rng.integers(-rank, rank, 2))
    same(computed(lambda b, v: shapes.transpose(b, v, a, c), x), x.transpose(a, c))
    same(computed(lambda b, v: shapes.movedim(b, v, a, c), x), x.movedim(a, c))
    new = int(rng.integers(-rank - 1, rank + 1))
    same(computed(lambda b, v: shapes.unsqueeze(b, v, new), x), x.unsqueeze(new))
    same(computed(lambda b, v: shapes.squeeze(b, v, a), x), x.squeeze(a))
    same(computed(lambda b, v: shapes.squeeze(b, v), x), x.squeeze())
    low, high = sorted(int(d) for d in rng.integers(0, rank, 2))
    same(computed(lambda b, v: shapes.flatten(b, v, low, high - rank), x), x.flatten(low, high))
    same(
        computed(lambda b, v: shapes.flip(b, v, order[: rank // 2 + 1]), x),
        x.flip(order[: rank // 2 + 1]),
    )
    shifts = [int(s) for s in rng.integers(-7, 8, rank)]
    same(computed(lambda b, v: shapes.roll(b, v, shifts, order), x), x.roll(shifts, order))
    same(computed(lambda b, v: shapes.roll(b, v, shifts[0]), x), x.roll(shifts[0]))
    times = [int(t) for t in rng.integers(1, 4, rank + int(rng.integers(2)))]
    same(computed(lambda b, v: shapes.repeat(b, v, times), x), x.repeat(times))
    same(computed(lambda b, v: shapes.repeat_interleave(b, v, 3, a), x), x.repeat_interleave(3, a))
    size = int(rng.integers(1, x.shape[a] + 1))
    step = int(rng.integers(1, 4))
    same(computed(lambda b, v: shapes.unfold(b, v, a, size, step), x), x.unfold(a, size, step))
    at = int(rng.integers(-x.shape[a], x.shape[a]))
    same(computed(lambda b, v: shapes.select(b, v, a, at), x), x.select(a, at))
    wide = [*shape_of(rng, int(rng.integers(0, 3))), *[3 if n == 1 else -1 for n in x.shape]]
    same(computed(lambda b, v: shapes.expand(b, v, wide), x), x.expand(wide))


@pytest.mark.parametrize("seed", SEEDS)
def test_slices_agree_with_numpy_with_steps_of_both_signs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = tensor(rng, 3, 9, 2)
    for _ in range(8):
        d = int(rng.integers(-3, 3))
        start, stop = (
            None if rng.integers(5) == 0 else int(rng.integers(-11, 12)) for _ in range(2)
        )
        step = int(rng.choice([-3, -2, -1, 1, 1, 2, 3]))
        part = [slice(None)] * 3
        part[d] = slice(start, stop, step)
        expected = torch.from_numpy(x.numpy()[tuple(part)].copy())
        same(computed(shapes.slice, x, more=(d, start, stop, step)), expected)


def test_parts_without_elements_are_joined_to_nothing() -> None:
    x = tensor(np.random.default_rng(7), 2, 5)

    def function(b: Builder, v: Value) -> Value:
        return shapes.cat(b, shapes.split(b, v, [3, 0, 2], 1), 1)

    same(computed(function, x), x)


@pytest.mark.parametrize("seed", SEEDS)
def test_joined_and_split_tensors_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = list(shape_of(rng, rank))
    d = int(rng.integers(-rank, rank))
    parts = []
    for n in rng.integers(1, 5, int(rng.integers(1, 9))):
        part = tensor(rng, *[int(n) if e == d % rank else extent for e, extent in enumerate(shape)])
        # What is not chosen leaks nothing.
        part.flatten()[int(rng.integers(part.numel()))] = float(rng.choice([np.nan, np.inf, -0.0]))
        parts.append(part)
    whole = torch.cat(parts, d)
    same(computed(lambda b, *v: shapes.cat(b, v, d), *parts), whole)
    sizes = [part.shape[d] for part in parts]
    for result, expected in zip(
        computed(lambda b, v: shapes.split(b, v, sizes, d), whole), parts, strict=True
    ):
        same(result, expected)
    pieces = computed(lambda b, v: shapes.split(b, v, 2, d), whole)
    for result, expected in zip(pieces, whole.split(2, d), strict=True):
        same(result, expected)
    alike = [tensor(rng, *shape) for _ in range(int(rng.integers(1, 6)))]
    place = int(rng.integers(-rank - 1, rank + 1))
    same(computed(lambda b, *v: shapes.stack(b, v, place), *alike), torch.stack(alike, place))
    same(computed(lambda b, v: shapes.cat(b, [v, v, v], d), alike[0]), torch.cat([alike[0]] * 3, d))


def test_many_tensors_are_joined() -> None:
    rng = np.random.default_rng(0)
    parts = [tensor(rng, 1, 2) for _ in range(70)]
    same(computed(lambda b, *v: shapes.cat(b, v, 0), *parts), torch.cat(parts, 0))
    same(computed(lambda b, *v: shapes.stack(b, v, 1), *parts), torch.stack(parts, 1))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("seed", range(6))
def test_padding_agrees(mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3))
    x = tensor(rng, 1, 2, *(int(e) for e in rng.integers(4, 7, n)))
    least = -1 if mode in ("constant", "circular") else 0
    begin = [0, 0, *(int(p) for p in rng.integers(least, 4, n))]
    end = [0, 0, *(int(p) for p in rng.integers(least, 4, n))]
    flat = [p for pair in zip(begin[:1:-1], end[:1:-1], strict=True) for p in pair]
    more = (
        {"value": float(rng.choice([0, 0.1, -np.inf, np.nan, 1e-30, 3e38]))}
        if mode == "constant"
        else {}
    )
    expected = F.pad(x, flat, mode, **more)
    same(computed(lambda b, v: shapes.pad(b, v, begin, end, mode, **more), x), expected)


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_padding_of_any_dimensions_agrees_with_numpy(mode: str) -> None:
    rng = np.random.default_rng(3)
    x = tensor(rng, 3, 4, 5, 3)
    begin, end = [1, 0, 2, 0], [0, 3, 1, 2]
    expected = np.pad(x.numpy(), list(zip(begin, end, strict=True)), mode)  # type: ignore[call-overload]
    name = "replicate" if mode == "edge" else mode
    same(computed(lambda b, v: shapes.pad(b, v, begin, end, name), x), torch.from_numpy(expected))


@pytest.mark.parametrize("diagonal", [-7, -2, 0, 1, 6])
def test_triangles_agree_and_hide_what_is_outside(diagonal: int) -> None:
    x = tensor(np.random.default_rng(1), 2, 4, 6)
    x[0, 0, 5] = math.inf
    x[1, 3, 0] = math.nan
    same(computed(lambda b, v: shapes.tril(b, v, diagonal), x), x.tril(diagonal))
    same(computed(lambda b, v: shapes.triu(b, v, diagonal), x), x.triu(diagonal))


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_pixels_shuffled_agree(factor: int) -> None:
    x = tensor(np.random.default_rng(2), 2, 36, 3, 4)
    y = F.pixel_shuffle(x, factor)
    same(computed(lambda b, v: shapes.pixel_shuffle(b, v, factor), x), y)
    same(computed(lambda b, v: shapes.pixel_unshuffle(b, v, factor), y), x)


def of_indices(rng: np.random.Generator, extent: int, *shape: int) -> np.ndarray:
    """Indices of many kinds: random, regular, repeated."""
    count = math.prod(shape)
    kinds = [
        rng.integers(-extent, extent, count),
        np.arange(count) % extent,
        (np.arange(count) // 2) % extent,
        (extent - 1 - np.arange(count)) % extent,
        np.arange(count) * extent // max(count, 1),
        np.full(count, extent // 2),
    ]
    return kinds[int(rng.integers(len(kinds)))].reshape(shape)


@pytest.mark.parametrize("seed", range(24))
def test_constant_indices_pick_what_numpy_picks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    x = tensor(rng, *shape_of(rng, rank))
    grid = shape_of(rng, int(rng.integers(0, 3)), 4)
    given: list[np.ndarray | None] = []
    for extent in x.shape:
        narrow = [1 if rng.integers(3) == 0 else n for n in grid]
        given.append(of_indices(rng, extent, *narrow) if rng.integers(2) else None)
    key = tuple(slice(None) if each is None else each for each in given)
    expected = torch.from_numpy(np.ascontiguousarray(x.numpy()[key]))
    expected = expected.reshape(x.numpy()[key].shape)
    same(computed(lambda b, v: shapes.index(b, v, given), x), expected)


@pytest.mark.parametrize("seed", range(40))
def test_computed_indices_pick_what_numpy_picks(seed: int) -> None:
    """Any mixture of computed and constant indices, negative ones too, of shapes that broadcast."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    x = tensor(rng, *shape_of(rng, rank))
    grid = shape_of(rng, int(rng.integers(0, 3)), 4)
    given: list[np.ndarray | None] = []
    for extent in x.shape:
        narrow = [1 if rng.integers(3) == 0 else n for n in grid][
            int(rng.integers(len(grid) + 1)) :
        ]
        picks = rng.integers(-extent, extent, narrow)
        given.append(np.asarray(picks) if rng.integers(3) else None)
    if all(each is None for each in given):
        given[0] = np.array([0, -1])
    whole = [n for n, each in enumerate(given) if each is not None]
    by_data = [n for n in whole if rng.integers(3)] or whole[:1]
    key = tuple(slice(None) if each is None else each for each in given)
    expected = np.ascontiguousarray(x.numpy()[key]).reshape(x.numpy()[key].shape)
    kind = np.int32 if seed % 3 == 0 else np.int64

    def picked(b: Builder, v: Value, *values: Value) -> Value:
        places: list[np.ndarray | Value | None] = list(given)
        for n, value in zip(by_data, values, strict=True):
            places[n] = value
        return shapes.index(b, v, places)

    values = [torch.from_numpy(np.asarray(given[n]).astype(kind)) for n in by_data]
    same(computed(picked, x, *values), torch.from_numpy(expected))


def test_computed_indices_that_do_not_fit_are_refused() -> None:
    x, at = torch.arange(24.0).reshape(2, 3, 4), torch.tensor([0, 1])
    with pytest.raises(NotCovered, match="float32"):
        computed(lambda b, v, i: shapes.index(b, v, [i]), x, torch.zeros(2))
    with pytest.raises(ShapeError, match="broadcast"):
        computed(lambda b, v, i: shapes.index(b, v, [i, np.array([0, 1, 2])]), x, at)
    with pytest.raises(ShapeError, match="4 indices"):
        computed(lambda b, v, i: shapes.index(b, v, [i, i, i, i]), x, at)
    with pytest.raises(ShapeError, match="index 3"):
        computed(lambda b, v, i: shapes.index(b, v, [i, np.array([3])]), x, at)
    for wrong in ([2, 0], [0, -4]):
        pair = [torch.tensor([n]) for n in wrong]
        with pytest.raises(IndexError):
            computed(lambda b, v, i, j: shapes.index(b, v, [i, j]), x, *pair)


def test_masks_and_ranges_pick() -> None:
    x = tensor(np.random.default_rng(4), 4, 5, 3)
    mask = np.random.default_rng(5).integers(0, 2, (4, 5)).astype(bool)
    same(computed(lambda b, v: shapes.index(b, v, [mask]), x), x[torch.from_numpy(mask)])
    with pytest.raises(ShapeError, match="index 5"):
        computed(lambda b, v: shapes.index(b, v, [None, np.array([0, 5])]), x)
    with pytest.raises(ShapeError, match="broadcast"):
        computed(lambda b, v: shapes.index(b, v, [np.array([0, 1]), np.array([0, 1, 2])]), x)


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_picked_by_data_and_by_constants(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = tensor(rng, 4, 6, 3)
    d = int(rng.integers(-3, 3))
    at = torch.from_numpy(rng.integers(0, x.shape[d], 5))
    same(computed(lambda b, v, i: shapes.index_select(b, v, d, i), x, at), x.index_select(d, at))
    same(computed(lambda b, v: shapes.index_select(b, v, d, at.numpy()), x), x.index_select(d, at))
    many = torch.from_numpy(rng.integers(0, x.shape[d], (2, 3)))
    expected = torch.from_numpy(np.take(x.numpy(), many.numpy(), d))
    same(computed(lambda b, v, i: shapes.take(b, v, i, d), x, many), expected)
    table = tensor(rng, 7, 4)
    rows = torch.from_numpy(rng.integers(0, 7, (2, 3)).astype(np.int32))
    same(computed(shapes.embedding, table, rows), F.embedding(rows, table))
    each = rng.integers(
        0, x.shape[d], (3, 2, 3) if d % 3 == 1 else (2, 5, 3) if d % 3 == 0 else (4, 6, 7)
    )
    expected = torch.gather(x, d, torch.from_numpy(each))
    same(computed(lambda b, v: shapes.gather(b, v, d, each), x), expected)
    by_data = computed(lambda b, v, i: shapes.gather(b, v, d, i), x, torch.from_numpy(each))
    same(by_data, expected)
    from_behind = torch.from_numpy(each - x.shape[d])
    same(computed(lambda b, v, i: shapes.gather(b, v, d, i), x, from_behind), expected)


def test_elements_out_of_range_are_an_error_at_run_time() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for wrong in (4, -5, 2**40):
        with pytest.raises(IndexError):
            computed(lambda b, v, i: shapes.gather(b, v, 1, i), x, torch.tensor([[wrong]]))


MODES = {
    1: ["nearest", "nearest-exact", "linear"],
    2: ["nearest", "nearest-exact", "bilinear", "bicubic"],
    3: ["nearest", "nearest-exact", "trilinear"],
}


@pytest.mark.parametrize(("n", "mode"), [(n, mode) for n, modes in MODES.items() for mode in modes])
@pytest.mark.parametrize("seed", range(3))
def test_up_sampling_agrees(n: int, mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = tensor(rng, 2, 3, *shape_of(rng, n, 7), dtype=torch.float64)
    corners = (False, True) if "linear" in mode or "cubic" in mode else (None,)
    for align in corners:
        size = [int(s) for s in rng.integers(1, 15, n)]
        expected = F.interpolate(x, size=size, mode=mode, align_corners=align)
        result = computed(shapes.upsample, x, more=(size, mode, align))
        same(result, expected, 1e-6)
        scales = [float(rng.choice([2, 3, 1.5, 0.5, 2.3, 1 / 3, 4])) for _ in range(n)]
        size = [int(e * s) for e, s in zip(x.shape[2:], scales, strict=True)]
        if min(size) == 0:
            continue
        expected = F.interpolate(x, scale_factor=scales, mode=mode, align_corners=align)
        result = computed(shapes.upsample, x, more=(size, mode, align, scales))
        same(result, expected, 1e-6)


def test_truth_values_keep_their_kind() -> None:
    x = torch.from_numpy(np.random.default_rng(6).integers(0, 2, (3, 4)).astype(bool))
    same(computed(lambda b, v: shapes.permute(b, v, [1, 0]), x), x.T)
    same(computed(lambda b, v: shapes.cat(b, [v, v], 0), x), torch.cat([x, x]))
    same(computed(lambda b, v: shapes.tril(b, v), x), x.tril())


def test_constant_whole_numbers_are_moved_at_once() -> None:
    numbers = np.arange(12, dtype=np.int64).reshape(3, 4)

    def moved(build: Builder, x: object) -> object:
        value = build.literal(numbers, "int64")
        value = shapes.cat(build, [shapes.permute(build, value, [1, 0])] * 2, 1)
        value = shapes.pad(build, shapes.flip(build, value, [0]), [1, 0], [0, 0], "replicate")
        return shapes.slice(build, shapes.repeat(build, value, [2, 1]), 1, None, None, -2)

    expected = np.concatenate([numbers.T] * 2, 1)[::-1]
    expected = np.tile(np.pad(expected, [(1, 0), (0, 0)], "edge"), (2, 1))[:, ::-2]
    same(computed(moved, torch.zeros(1)), torch.from_numpy(expected.copy()))


def test_whole_numbers_of_the_input_are_moved_by_the_engine() -> None:
    x = torch.from_numpy(np.arange(2**62, 2**62 + 12, dtype=np.int64).reshape(3, 4))
    same(computed(shapes.permute, x, more=([1, 0],)), x.T)
    same(computed(shapes.reshape, x, more=([2, -1],)), x.reshape(2, 6))
    same(computed(shapes.slice, x, more=(1, None, None, -2)), x.flip(1)[:, ::2])
    same(computed(shapes.index, x, more=([np.array([0, 2, 1])],)), x[[0, 2, 1]])
    same(computed(shapes.repeat, x, more=([1, 2],)), x.repeat(1, 2))
    at = torch.tensor([[3, 0], [-1, 1]])
    expected = torch.from_numpy(np.take(x.numpy(), at.numpy(), 1))
    same(computed(lambda b, v, i: shapes.take(b, v, i, 1), x, at), expected)
    for function in (
        lambda b, v: shapes.cat(b, [v, v], 0),
        lambda b, v: shapes.tril(b, v),
        lambda b, v: shapes.pad(b, v, [1, 1], [0, 0], "constant", 3),
    ):
        with pytest.raises(NotCovered):
            computed(function, x)


def test_wrong_arguments_get_a_sentence() -> None:
    x = torch.zeros(2, 3)
    wrong = [
        lambda b, v: shapes.reshape(b, v, [4, -1]),
        lambda b, v: shapes.reshape(b, v, [-1, -1]),
        lambda b, v: shapes.permute(b, v, [0, 0]),
        lambda b, v: shapes.permute(b, v, [0]),
        lambda b, v: shapes.permute(b, v, [0, 2]),
        lambda b, v: shapes.expand(b, v, [3, 3]),
        lambda b, v: shapes.expand(b, v, [3]),
        lambda b, v: shapes.slice(b, v, 2, 0, 1),
        lambda b, v: shapes.slice(b, v, 0, 0, 1, 0),
        lambda b, v: shapes.select(b, v, 0, 2),
        lambda b, v: shapes.cat(b, [v, shapes.permute(b, v, [1, 0])], 0),
        lambda b, v: shapes.cat(b, [], 0),
        lambda b, v: shapes.stack(b, [v, shapes.permute(b, v, [1, 0])], 0),
        lambda b, v: shapes.split(b, v, [1, 1], 1),
        lambda b, v: shapes.pad(b, v, [0], [0]),
        lambda b, v: shapes.pad(b, v, [0, 3], [0, 0], "reflect"),
        lambda b, v: shapes.pad(b, v, [-2, 0], [-1, 0]),
        lambda b, v: shapes.pad(b, v, [1, 0], [0, 0], "mirror"),
        lambda b, v: shapes.roll(b, v, [1, 2], [0]),
        lambda b, v: shapes.repeat(b, v, [2]),
        lambda b, v: shapes.unfold(b, v, 0, 3, 1),
        lambda b, v: shapes.pixel_shuffle(b, v, 2),
        lambda b, v: shapes.upsample(b, v, [2], "nearest"),
        lambda b, v: shapes.tril(b, shapes.select(b, v, 0, 0)),
        lambda b, v: shapes.gather(b, v, 0, np.array([0])),
    ]
    for function in wrong:
        with pytest.raises(SynoError, match=r"^\[graph\]"):
            computed(function, x)


@pytest.mark.parametrize("seed", range(20))
def test_tables_are_said_only_by_expressions_that_give_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c, m = (int(v) for v in rng.integers(1, 9, 4))
    k = np.arange(int(rng.integers(1, 40)))
    for table, surely in (
        (a * k - b, True),
        ((a * k + b) // c, True),
        ((k + b) % m, True),
        (k // m, True),
        (a * (k // m) + b * (k % m), True),
        (rng.integers(0, 9, len(k)), False),
        (np.minimum((a * k) // c, 5), False),
    ):
        said = as_index(table, "i")
        assert said is not None or not surely or len(k) < 3, table
        if said is not None:
            value = [eval(said.replace("/", "//"), {"i": int(i)}) for i in k]
            assert value == table.tolist(), said


def test_no_expression_is_found_for_disorder() -> None:
    assert as_index(np.array([0, 1, 3, 7, 2, 9, 4]), "i") is None
    assert list(itertools.islice(as_index(np.array([5]), "i") or "", 1)) == ["5"]
