"""Properties of reuse: domination, ranges, cost models, programs from shapes, and trees against brute force."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno.errors import ShapeError
from syno.tuning.reuse.divisors import divisors, divisors_between, factorizations
from syno.tuning.reuse.expected import _threads_in_all
from syno.tuning.reuse.footprints import all_lines, block_cost, thread_loads, thread_requests
from syno.tuning.reuse.gpu_program import UNROLLS, make_program
from syno.tuning.reuse.graph import ROOT, ChoiceGraph, arborescence, make_tree
from syno.tuning.reuse.greedy_steiner import greedy_tree
from syno.tuning.reuse.hierarchical import Ratios, hierarchical_search
from syno.tuning.reuse.operators import (
    CROSS_THREAD,
    TWO_LEVEL,
    TYPES,
    Operator,
    bridge,
    can_reuse,
    dominates,
)
from syno.tuning.reuse.simplified import FlatProgram, flat_counts, flat_search
from syno.tuning.reuse.steiner import steiner_tree

EXTENT = st.sampled_from([1, 2, 3, 4, 6, 7, 8, 12, 16])
RATIO = st.builds(Fraction, st.integers(1, 60), st.integers(1, 60)) | st.fractions(
    min_value=Fraction(1, 50), max_value=50
)
VECTOR = st.tuples(EXTENT, EXTENT, EXTENT)


@st.composite
def operators(draw: st.DrawFn, kind: str | None = None) -> Operator:
    name = kind or draw(st.sampled_from(sorted(TYPES)))
    extents = draw(st.tuples(*[EXTENT] * len(TYPES[name].loops)))
    stride = draw(st.integers(1, 2)) if "conv" in name else 1
    return Operator(name, extents, stride=stride)


@given(VECTOR, VECTOR, VECTOR)
def test_domination_is_a_partial_order(
    a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]
) -> None:
    assert dominates(a, a)
    if dominates(a, b) and dominates(b, a):
        assert a == b
    if dominates(a, b) and dominates(b, c):
        assert dominates(a, c)


@given(st.data())
def test_a_bridge_is_below_both_and_only_where_they_do_not_reuse(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(TYPES)))
    a, b = data.draw(operators(kind)), data.draw(operators(kind))
    assert can_reuse(a, b) == can_reuse(b, a)
    made = bridge(a, b)
    if made is not None:
        assert not can_reuse(a, b)
        assert can_reuse(made, a) and can_reuse(b, made)
        assert made.stride == 1
    else:
        assert can_reuse(a, b) or a.group != b.group or bridge(b, a) is None


@given(st.integers(1, 5000))
def test_divisors_are_all(number: int) -> None:
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


@given(st.integers(-3, 60), st.integers(-3, 60), st.integers(1, 400))
def test_divisors_in_a_range_are_there_and_at_most_one_beyond(
    near: int, far: int, number: int
) -> None:
    found = divisors_between(near, far, number)
    low, high = min(near, far), max(near, far)
    inside = {d for d in divisors(number) if low <= d <= high}
    beyond = set(found) - inside
    assert inside <= set(found) and len(found) == len(set(found))
    assert len(beyond) <= 1
    assert all((d < far) if far < near else (d > far) for d in beyond)
    assert list(found) == sorted(found, reverse=far < near)


@given(
    st.integers(1, 2000),
    st.integers(1, 2000),
    RATIO,
    RATIO,
)
@settings(deadline=None)
def test_counting_all_ranges_at_once_is_counting_each(
    block: int, size: int, space: Fraction, reduction: Fraction
) -> None:
    if (space >= 1) != (reduction >= 1):  # one loop vector dominates the other
        reduction = 1 / reduction
    ratios = Ratios(space, reduction)
    each = sum(len(ratios.thread_counts(block, size, threads)) for threads in divisors(size))
    assert _threads_in_all(ratios, block, size) == each


@given(operators())
@settings(deadline=None)
def test_ranges_of_the_same_shape_hold_the_programs_own_numbers(operator: Operator) -> None:
    ratios = Ratios.of(operator, operator)
    for size in divisors(operator.space_points)[-4:]:
        assert size in ratios.block_sizes(operator.space_points, size)
        for threads in divisors(size):
            if threads < 1024:
                assert threads in ratios.thread_counts(size, size, threads)
    if operator.kind.load_loop is not None:  # else its fetches are not tuned
        extent = operator.extents[operator.kind.load_loop]
        for loads in divisors(extent):
            assert loads in ratios.load_counts(extent, Fraction(loads))


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Operator, tuple[int, ...]]:
    drawn = draw(operators())
    extents: list[int] = []
    for extent in drawn.extents:  # few enough points to list
        extents.append(extent if math.prod(extents) * extent <= 20_000 else 1)
    operator = Operator(drawn.type, tuple(extents), stride=drawn.stride)
    return operator, tuple(draw(st.sampled_from(divisors(extent))) for extent in operator.space)


@given(shapes())
@settings(deadline=None, max_examples=60)
def test_lines_of_a_block_are_those_that_are_listed(case: tuple[Operator, tuple[int, ...]]) -> None:
    operator, shape = case
    assert block_cost(operator, shape) == all_lines(operator, shape)


@given(shapes(), st.data())
@settings(deadline=None)
def test_getS_gives_back_the_shapes_it_was_given(
    case: tuple[Operator, tuple[int, ...]], data: st.DataObject
) -> None:
    operator, block = case
    virtual = tuple(data.draw(st.sampled_from(divisors(b))) for b in block)
    tile = tuple(
        data.draw(st.sampled_from(divisors(b // v))) for b, v in zip(block, virtual, strict=True)
    )
    loads = tuple(data.draw(st.sampled_from(divisors(e))) for e in operator.reduction)
    wanted = data.draw(st.integers(0, 2000))
    made = make_program(operator, block, (virtual, tile), loads, registers=wanted)
    assert (made.block_shape, made.thread_shape, made.load_shape) == (block, (virtual, tile), loads)
    assert made.unroll in UNROLLS
    assert made.blocks * math.prod(block) == operator.space_points
    assert made.threads == made.blocks * math.prod(block) // math.prod(virtual) // math.prod(tile)
    others = [made.body(option)[1] for option in (made.unroll, *made.other_unrolls())]
    assert len(set(others)) == len(others)
    threads = tuple(s[2] for s in made.space)
    requests = thread_requests(operator, threads, tile, made.fetch)
    warps = -(-math.prod(threads) // 32)
    assert all(warps <= r <= math.prod(threads) for r in requests)
    alone = thread_loads(operator, virtual, threads, tile, made.fetch)
    assert sum(alone) <= sum(
        math.prod(part)
        for part in [[math.prod(virtual), math.prod(tile), *made.fetch[len(tile) :]]] * 2
    )


def test_shapes_that_do_not_divide_get_a_sentence() -> None:
    product = Operator("batch_matmul", (1, 16, 4, 8))
    with pytest.raises(ShapeError, match="do not divide"):
        make_program(product, (1, 5, 4), ((1, 1, 1), (1, 1, 1)), (2,))
    with pytest.raises(ShapeError, match="3 fetches"):
        make_program(product, (1, 8, 4), ((1, 1, 1), (1, 1, 1)), (3,))


@given(st.integers(1, 200), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_factorizations_are_all(number: int, lengths: list[int]) -> None:
    every = [
        one
        for one in itertools.product(*(divisors(length) for length in lengths))
        if math.prod(one) == number
    ]
    assert sorted(factorizations(number, tuple(lengths))) == sorted(every)


@given(operators("batch_matmul"), operators("batch_matmul"), st.data())
@settings(deadline=None, max_examples=30)
def test_a_search_measures_nothing_twice_and_finds_its_best(
    a: Operator, b: Operator, data: st.DataObject
) -> None:
    block = tuple(data.draw(st.sampled_from(divisors(e))) for e in b.space)
    tile = tuple(data.draw(st.sampled_from(divisors(e))) for e in block)
    ones = (1,) * len(block)
    parent = make_program(b, block, (ones, tile), (1,), registers=64)
    if not can_reuse(a, b):
        with pytest.raises(ShapeError, match="cannot reuse"):
            hierarchical_search(a, parent, lambda _: 1.0)
        return
    times: dict[object, float] = {}

    def measure(program: object) -> float:
        assert program not in times
        times[program] = (hash(str(program)) % 1000) / 7
        return times[program]

    found = hierarchical_search(a, parent, measure)
    assert found.measured == len(times)
    if times:
        assert found.seconds == min(times.values())


@given(operators(), st.sampled_from([CROSS_THREAD, TWO_LEVEL]), st.data())
@settings(deadline=None)
def test_flat_programs_of_the_same_shape_keep_their_threads(
    operator: Operator, sketch: str, data: st.DataObject
) -> None:
    points = operator.reduction_points if sketch == CROSS_THREAD else operator.space_points
    threads = data.draw(st.sampled_from([d for d in divisors(points) if d < 1024]))
    ratios = Ratios.of(operator, operator)
    assert threads in flat_counts(ratios, operator, sketch, threads)
    parent = FlatProgram(operator, sketch, threads, 16)
    best, measured = flat_search(operator, parent, lambda p: abs(p.threads - threads) + p.unroll)
    assert best is not None and (best.threads, best.unroll) == (threads, 0)
    assert measured >= len(UNROLLS)


@st.composite
def comparable_operators(draw: st.DrawFn) -> tuple[Operator, Operator]:
    a = draw(operators())
    b = Operator(a.type, tuple(extent * draw(st.integers(1, 3)) for extent in a.extents))
    return (a, b) if draw(st.booleans()) else (b, a)


@given(comparable_operators(), st.data())
@settings(deadline=None)
def test_blocks_of_two_levels_lie_in_r1_to_r2(
    case: tuple[Operator, Operator], data: st.DataObject
) -> None:
    a, b = case
    if not can_reuse(a, b):
        assert a.sketches != b.sketches
        return
    ratios = Ratios.of(a, b)
    threads = data.draw(st.sampled_from(divisors(b.space_points)))
    low, high = sorted((ratios.r1, ratios.r2))
    blocks = b.space_points // threads
    inside = {
        t
        for t in divisors(a.space_points)
        if t < 1024 and low <= Fraction(a.space_points // t, blocks) <= high
    }
    assert inside <= set(flat_counts(ratios, a, TWO_LEVEL, threads))


@st.composite
def graphs(draw: st.DrawFn) -> ChoiceGraph:
    nodes = draw(st.integers(1, 5))
    terminals = draw(st.integers(1, nodes))
    costs = {}
    for parent in range(-1, nodes):
        for child in range(nodes):
            if parent != child and draw(st.booleans()):
                costs[(parent, child)] = float(draw(st.integers(0, 20)))
    return ChoiceGraph(nodes, terminals, costs)


def brute_force(graph: ChoiceGraph) -> float:
    """The least cost over all choices of a parent, or of none, for every node."""
    best = math.inf
    into = [[e for e in graph.costs if e[1] == node] for node in range(graph.nodes)]
    choices = [
        [*edges, None] if node >= graph.terminals else edges for node, edges in enumerate(into)
    ]
    for chosen in itertools.product(*choices):
        edges = [edge for edge in chosen if edge is not None]
        parent = {child: parent for parent, child in edges}
        if all(_leads_up(parent, node) for node in parent):
            best = min(best, sum(graph.costs[edge] for edge in edges))
    return best


def _leads_up(parent: dict[int, int], node: int) -> bool:
    for _ in range(len(parent) + 1):
        if node == ROOT:
            return True
        if node not in parent:
            return False
        node = parent[node]
    return False


@given(graphs())
@settings(deadline=None, max_examples=150)
def test_trees_are_the_least_or_what_is_lost_is_named(graph: ChoiceGraph) -> None:
    least = brute_force(graph)
    if math.isinf(least):
        for solve in (steiner_tree, greedy_tree):
            with pytest.raises(ShapeError, match="nothing leads to"):
                solve(graph)
        return
    exact, near = steiner_tree(graph), greedy_tree(graph)
    assert exact.cost == pytest.approx(least) and exact.gap == pytest.approx(0)
    assert near.bound - 1e-9 <= least <= near.cost + 1e-9
    for tree in (exact, near):
        seen = {ROOT}
        for parent, child in tree.edges:
            assert parent in seen and child not in seen
            seen.add(child)
        assert set(range(graph.terminals)) <= seen
        assert tree.cost == pytest.approx(sum(graph.costs[edge] for edge in tree.edges))


@given(graphs())
@settings(deadline=None, max_examples=100)
def test_the_arborescence_is_the_least_without_bridges(graph: ChoiceGraph) -> None:
    small = graph.without_bridges()
    least = brute_force(small)
    if math.isinf(least):
        with pytest.raises(ShapeError, match="nothing leads to"):
            arborescence(graph)
    else:
        assert arborescence(graph).cost == pytest.approx(least)


@given(st.integers(2, 25), st.integers(0, 2**32), st.sampled_from([3, 1000]))
@settings(deadline=None, max_examples=60)
def test_the_arborescence_of_a_larger_graph_costs_what_networkx_says(
    nodes: int, seed: int, most: int
) -> None:
    networkx = pytest.importorskip("networkx")
    draw = random.Random(seed)
    costs = {(ROOT, node): float(most) for node in range(nodes)}
    for edge in itertools.permutations(range(nodes), 2):
        if draw.random() < 0.6:
            costs[edge] = float(draw.randint(0, most))
    drawn = networkx.DiGraph()
    drawn.add_weighted_edges_from((p, c, w) for (p, c), w in costs.items())
    other = networkx.minimum_spanning_arborescence(drawn).size("weight")
    assert arborescence(ChoiceGraph(nodes, nodes, costs)).cost == pytest.approx(other)


def test_what_is_no_tree_is_refused() -> None:
    graph = ChoiceGraph(2, 2, {(ROOT, 0): 1.0, (0, 1): 1.0, (1, 0): 1.0, (ROOT, 1): 5.0})
    with pytest.raises(ShapeError, match="not reached"):
        make_tree(graph, [(0, 1), (1, 0)])
    with pytest.raises(ShapeError, match="would reuse"):
        make_tree(graph, [(0, 1), (ROOT, 1), (ROOT, 0)])
    with pytest.raises(ShapeError, match="costs -1"):
        ChoiceGraph(1, 1, {(ROOT, 0): -1.0})


def test_no_time_leaves_the_approximation_with_its_gap() -> None:
    graph = ChoiceGraph(2, 1, {(ROOT, 0): 5.0, (ROOT, 1): 1.0, (1, 0): 1.0})
    tree = steiner_tree(graph, limit_s=0.0)
    assert tree.cost == greedy_tree(graph).cost
    assert tree.bound <= tree.cost
