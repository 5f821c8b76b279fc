"""The numbers that ETO (PVLDB 15(2), 2022) prints: counts and Example 3 to the integer, costs within its sampling."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from syno.errors import FormatError, ShapeError, UnknownName
from syno.tuning.reuse import Operator, ReusePlan, operator_set, plan_operators
from syno.tuning.reuse.divisors import divisors, divisors_between
from syno.tuning.reuse.expected import expected_measurements
from syno.tuning.reuse.gpu_program import GpuProgram, make_program
from syno.tuning.reuse.graph import arborescence, choice_graph
from syno.tuning.reuse.hierarchical import (
    Ratios,
    best_block_shape,
    best_thread_shape,
    candidates_of,
    hierarchical_search,
)
from syno.tuning.reuse.operators import (
    CROSS_THREAD,
    MULTI_LEVEL,
    TWO_LEVEL,
    UNROLL_CONSTANT,
    all_bridges,
    bridges,
    dominates,
    reuse_pairs,
)
from syno.tuning.reuse.sets import groups
from syno.tuning.reuse.simplified import FlatProgram, StageProgram, composite_search, flat_counts

BETA = Operator("conv2d", (1, 128, 28, 28, 512, 1, 1))
ALPHA = Operator("conv2d", (1, 128, 28, 28, 256, 1, 1))
FIGURE_2 = GpuProgram(
    BETA,
    ((1, 1, 1, 1, 1), (4, 1, 8, 2, 2), (14, 1, 1, 1, 2), (1, 1, 28, 1, 1)),
    ((4, 64, 2), (1, 1, 1), (1, 1, 1)),
    1024,
    (1, 1),
)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("ResNet50", {"conv2d": [20]}),
        ("MobileNetV2", {"conv2d": [20, 1], "depthwise_conv2d": [10]}),
        ("ResNeSt50", {"conv2d": [22, 4], "group_conv2d": [7]}),
        ("1D-IR", {"conv1d": [35]}),
        ("R(2+1)D", {"conv3d": [25]}),
        ("DCGAN", {"transposed_conv2d": [5]}),
        ("BERT-Base", {"batch_matmul": [5]}),
        ("ResNet50(L)", {"conv2d": [40]}),
        ("BERT(L)", {"batch_matmul": [36]}),
    ],
)
def test_operators_of_networks_are_as_many_as_in_table_2(
    name: str, counts: dict[str, list[int]]
) -> None:
    found: dict[str, list[int]] = {}
    for (kind, _), members in groups(operator_set(name)).items():
        found.setdefault(kind, []).append(len(members))
    assert found == counts


@pytest.mark.parametrize(
    ("name", "one_hop", "all_hops"), [("ResNet50", 44, 49), ("MobileNetV2", 81, 121)]
)
def test_bridges_are_as_many_as_in_section_7(name: str, one_hop: int, all_hops: int) -> None:
    members = groups(operator_set(name)).values()
    assert sum(len(bridges(of)) for of in members) == one_hop
    assert sum(len(all_bridges(of)) for of in members) == all_hops


def test_pairs_of_bert_are_4_and_24_with_bridges() -> None:
    bert = operator_set("BERT-Base")
    assert len(reuse_pairs(bert)) == 4
    assert len(reuse_pairs(bert + bridges(bert))) == 24


def test_pairs_of_ssd_of_which_one_dominates_the_other_are_106() -> None:
    members = operator_set("SSD-ResNet50")
    ordered = [(a, b) for a in members for b in members if a != b]
    assert (
        sum(dominates(a.extents, b.extents) or dominates(b.extents, a.extents) for a, b in ordered)
        == 106
    )


def test_a_sum_is_shared_out_only_where_a_block_of_threads_has_few_points() -> None:
    # Ansor's rule: at most 1024 output points, and fewer than terms of the sum.
    assert Operator("conv1d", (1, 192, 8, 2080, 1)).sketches == (MULTI_LEVEL,)
    assert Operator("conv1d", (1, 128, 8, 2080, 1)).sketches == (MULTI_LEVEL, CROSS_THREAD)
    assert Operator("conv1d", (1, 128, 8, 1024, 1)).sketches == (MULTI_LEVEL,)


def test_winograd_is_tuned_stage_by_stage() -> None:
    # 64 channels of 56 × 56 to 64 by tiles of 4 × 4 outputs, from half as many channels.
    a, b = (
        Operator("winograd_bgemm", (6, 6, 196, 64, 64)),
        Operator("winograd_bgemm", (6, 6, 196, 64, 32)),
    )
    assert [sketch for sketch, _ in a.stages] == [
        UNROLL_CONSTANT,
        MULTI_LEVEL,
        UNROLL_CONSTANT,
        TWO_LEVEL,
    ]
    assert [stage.extents for _, stage in a.stages] == [
        (196, 64, 6, 6), (6, 6, 196, 64, 64), (196, 64, 6, 6), (196 * 16, 64),
    ]  # fmt: skip
    whole = expected_measurements(a, b)
    product = expected_measurements(a, b, sketch=MULTI_LEVEL)
    flat = [
        sum(len(flat_counts(Ratios.of(x, y), x, sketch, n)) for n in known) / len(known) + 4
        for (sketch, x), (_, y) in zip(a.stages, b.stages, strict=True)
        if sketch != MULTI_LEVEL
        for known in [[n for n in divisors(y.space_points) if n < 1024]]
    ]
    assert whole == pytest.approx(product + sum(flat)) and len(flat) == 3


def test_the_stages_of_winograd_are_searched_one_by_one() -> None:
    a, b = (
        Operator("winograd_bgemm", (4, 4, 49, 32, 16)),
        Operator("winograd_bgemm", (4, 4, 49, 32, 32)),
    )
    parents = [
        make_program(stage, (1, 1, 7, 8), ((1, 1, 1, 1), (1, 1, 1, 2)), (4,))
        if sketch == MULTI_LEVEL
        else FlatProgram(stage, sketch, 49)
        for sketch, stage in b.stages
    ]
    seen: list[StageProgram] = []

    def measure(made: StageProgram) -> float:
        seen.append(made)
        return -made.blocks

    best, measured = composite_search(a, parents, measure)
    assert measured == len(seen) and None not in best
    assert [made.operator for made in best if made] == [stage for _, stage in a.stages]
    for here, (_, stage) in zip(best, a.stages, strict=True):
        assert here is not None
        assert here.blocks == max(made.blocks for made in seen if made.operator == stage)
    for wrong, told in ((parents[:3], "4 stages"), ((*parents[:2], *parents[1:3]), "sketch")):
        with pytest.raises(ShapeError, match=told):
            composite_search(a, wrong, measure)
    with pytest.raises(ShapeError, match="0 stages"):
        composite_search(Operator("batch_matmul", (1, 8, 8, 8)), [], measure)


def test_the_bridge_of_section_6() -> None:
    a = Operator("conv2d", (1, 64, 14, 14, 64, 3, 3))
    b = Operator("conv2d", (1, 64, 28, 28, 64, 1, 1), stride=2)
    assert bridges((a, b)) == (Operator("conv2d", (1, 64, 14, 14, 64, 1, 1)),)


def test_features_of_figure_2() -> None:
    assert FIGURE_2.blocks == 56
    assert FIGURE_2.threads == 56 * 224
    assert FIGURE_2.shared == 56 * 11264
    assert FIGURE_2.block_shape == (1, 32, 2, 28)
    assert FIGURE_2.thread_shape == ((1, 1, 1, 1), (1, 4, 2, 1))
    assert FIGURE_2.load_shape == (4, 1, 1)


def test_example_3_to_the_integer() -> None:
    ratios = Ratios.of(ALPHA, BETA)
    assert (ratios.r1, ratios.r2) == (2, 0.5)
    sizes = ratios.block_sizes(ALPHA.space_points, 32 * 2 * 28)
    assert {ALPHA.space_points // size for size in sizes} == {28, 32, 49, 56, 64, 98, 112}
    shape = best_block_shape(ALPHA, ALPHA.space_points // 56)
    assert shape == (1, 32, 2, 28)
    assert candidates_of(ratios, ALPHA, FIGURE_2, 1792) == (shape, (2,), (4, 2))
    assert set(ratios.thread_counts(1792, 1792, 224)) == {112, 128, 224}
    ones = (1, 1, 1, 1)
    assert [best_thread_shape(ALPHA, shape, (2, 1, 1), t) for t in (112, 128, 224)] == [
        (ones, (1, 4, 2, 2)),
        (ones, (1, 2, 1, 7)),
        (ones, (1, 4, 2, 1)),
    ]


def test_the_rounds_of_example_3() -> None:
    def as_in_the_paper(made: GpuProgram) -> float:
        good = made.threads_of_block == 224 and made.load_shape == (2, 1, 1) and made.unroll == 1024
        return 0.0 if made.blocks == 56 and good else 1.0

    found = hierarchical_search(ALPHA, FIGURE_2, as_in_the_paper)
    rounds = {made.name: made.programs for made in found.rounds if made.blocks == 56}
    assert [p.threads_of_block for p in rounds["threads"]] == [224, 128, 112]
    assert {p.unroll for p in rounds["threads"]} == {1024}
    assert [p.load_shape for p in rounds["loads"]] == [(4, 1, 1)]
    assert [p.unroll for p in rounds["unroll"]] == [0, 16]
    assert [p.vectors for p in rounds["vectors"]] == [(2, 1), (4, 1)]  # none for the kernel
    assert found.best is not None and found.best.blocks == 56


def test_getS_splits_what_remains() -> None:
    # A loop of 16 whose first three tiles are 2: the others are 1 and 2.
    product = Operator("batch_matmul", (1, 16, 4, 8))
    made = make_program(product, (1, 8, 4), ((1, 2, 1), (1, 2, 2)), (2,))
    assert made.space[1] == (2, 2, 2, 1, 2)


def test_divisors_as_the_paper_counts_them() -> None:
    assert divisors_between(27, 113, 100352) == (28, 32, 49, 56, 64, 98, 112)
    assert divisors_between(5, 7, 64) == (8,)
    assert divisors_between(9, 3, 64) == (8, 4)


def test_costs_of_bert_are_within_the_papers_sampling() -> None:
    bert = operator_set("BERT-Base")
    alone = plan_operators(bert, selection="no-bridges", samples=None)
    bridged = plan_operators(bert, selection="bridges", samples=None)
    # 3190.8 and 1555.2 by ten samples an edge; what is not the 1000 of a search is estimated.
    assert alone.cost - 3000 == pytest.approx(190.8, rel=0.15)
    assert bridged.cost - 1000 == pytest.approx(555.2, rel=0.15)
    assert sum(step.action == "tune" for step in alone.steps) == 3
    assert sum(step.action == "tune" for step in bridged.steps) == 1
    assert bridged.gap == 0


def test_eight_convolutions_of_resnet_reuse_nothing_without_bridges() -> None:
    members = operator_set("ResNet50")
    graph = choice_graph(
        reuse_pairs(members),
        20,
        20,
        lambda a, b: expected_measurements(members[a], members[b]),
        lambda _: 1000.0,
    )
    assert len(arborescence(graph).tuned) == 8


def test_of_several_sketches_the_dearest_counts_until_one_is_known() -> None:
    a, b = Operator("conv2d", (1, 32, 1, 1, 64, 1, 1)), Operator("conv2d", (1, 64, 1, 1, 128, 1, 1))
    assert a.sketches == b.sketches == (MULTI_LEVEL, CROSS_THREAD)
    known = {name: expected_measurements(b, a, sketch=name) for name in a.sketches}
    assert expected_measurements(b, a) == max(known.values())
    plan = plan_operators((a, b), samples=None)
    (group,) = {step.group for step in plan.steps}
    again = plan_operators((a, b), samples=None, sketches={group: CROSS_THREAD})
    assert again.cost < plan.cost


def test_a_norm_has_two_sketches_and_the_dearer_one_counts() -> None:
    a, b = Operator("frobenius_norm", (16, 256, 256)), Operator("frobenius_norm", (1, 256, 256))
    known = {name: expected_measurements(a, b, sketch=name) for name in a.sketches}
    assert len(known) == 2 and expected_measurements(a, b) == max(known.values())


def test_sampled_costs_are_near_the_average_and_repeat() -> None:
    bert = operator_set("BERT-Base")
    pairs = reuse_pairs(bert)
    drawn = [expected_measurements(bert[a], bert[b], samples=400, seed=1) for a, b in pairs]
    exact = [expected_measurements(bert[a], bert[b]) for a, b in pairs]
    assert drawn == [expected_measurements(bert[a], bert[b], samples=400, seed=1) for a, b in pairs]
    assert math.fsum(drawn) == pytest.approx(math.fsum(exact), rel=0.15)


def test_a_plan_is_saved_and_read_back_strictly(tmp_path: Path) -> None:
    plan = plan_operators(operator_set("BERT-Base"), selection="greedy")
    plan.save(tmp_path / "plan.json")
    assert ReusePlan.load(tmp_path / "plan.json") == plan
    assert "reuse" in str(plan) and "reuse" in plan._repr_html_()
    text = (tmp_path / "plan.json").read_text()
    for bad in (
        text[:-40],
        text.replace('"gap"', '"gip"').replace('"cost"', '"cast"'),
        text.replace(plan.steps[0].name, "another", 1),
        text.replace('"version": 1', '"version": 2'),
    ):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(FormatError, match=r"\[reuse\]"):
            ReusePlan.load(tmp_path / "bad.json")
    with pytest.raises(FormatError, match="there is no plan"):
        ReusePlan.load(tmp_path / "none.json")


def test_what_is_no_operator_gets_a_sentence() -> None:
    with pytest.raises(ShapeError, match="extent 0"):
        Operator("conv2d", (1, 128, 0, 28, 512, 1, 1))
    with pytest.raises(ShapeError, match="6 extents"):
        Operator("conv2d", (1, 128, 28, 28, 512, 1))
    with pytest.raises(UnknownName, match="conv4d"):
        Operator("conv4d", (1,))
    with pytest.raises(ShapeError, match="cannot reuse"):
        Ratios.of(ALPHA, Operator("batch_matmul", (1, 2, 3, 4)))
    with pytest.raises(UnknownName, match="VGG"):
        operator_set("VGG")
