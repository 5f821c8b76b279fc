"""Reuse on this machine: programs without names, schedules moved to other shapes, candidates, the store's neighbours."""

from __future__ import annotations

import datetime
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syno
from syno import _core
from syno.errors import ArgumentError, FormatError, KernelError, ShapeError
from syno.machines.model import machine_model
from syno.tuning.records import Record, RecordStore, make_record, record_store, this_version
from syno.tuning.reuse.bridging import bridge_program, bridge_programs
from syno.tuning.reuse.candidates import candidates_for, outside
from syno.tuning.reuse.cpu_features import features_of
from syno.tuning.reuse.names import renamed, sketch_of
from syno.tuning.reuse.reusing import reuse
from syno.tuning.reuse.selection import clusters, selected, similarity
from syno.tuning.reuse.shapes import comparable, distance, shape_of
from syno.tuning.reuse.transplant import transplanted
from syno.tuning.search import tune
from syno.tuning.trace_parts import parts_of

#: Programs of several types, with the extents that one may choose.
FORMS = {
    "y[m,n] = sum[k] a[m,k] * b[k,n]": "mnk",
    "y[b,o,h,w] = sum[c,r,s] x[b,c,h+r-1,w+s-1] * k[o,c,r,s]": "ohwc",
    "t[m,n] = sum[k] a[m,k] * b[n,k]; y[m,n] = relu(t[m,n] + c[n])": "mnk",
    "y[c,h] = sum[r] x[c,2*h+r] * k[c,r]": "ch",
    "m[i] = max[j] x[i,j]; y[i,l] = exp(x[i,l] - m[i])": "ij",
    "y[i,j] = x[j,i]": "ij",
}
FIXED = {"b": 1, "r": 3, "s": 3}


def program_of(form: str, sizes: dict[str, int]) -> Any:
    if "[i,l]" in form:
        sizes = {**sizes, "l": sizes["j"]}
    fixed = {name: size for name, size in FIXED.items() if re.search(rf"\[[^\]]*\b{name}\b", form)}
    return _core.Program.parse(form, sizes={**fixed, **sizes})


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, Any]:
    form = draw(st.sampled_from(sorted(FORMS)))
    sizes = {name: draw(st.integers(1, 40)) for name in FORMS[form]}
    return form, program_of(form, sizes)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    form = draw(st.sampled_from(sorted(FORMS)))
    return tuple(  # type: ignore[return-value]
        program_of(form, {name: draw(st.integers(1, 40)) for name in FORMS[form]}) for _ in range(2)
    )


def all_schedules(program: Any, threads: int = 2) -> Iterator[_core.Schedule]:
    yield _core.default_schedule(program, threads=threads)
    space = _core.ScheduleSpace(program, machine_model(), threads=threads)
    for start in space.starts():
        yield start.schedule
    for seed in range(6):
        drawn = space.sample(seed)
        if drawn is not None:
            yield drawn.schedule


@given(programs())
@settings(deadline=None, max_examples=40)
def test_a_program_without_its_names_is_the_same_program(case: tuple[str, Any]) -> None:
    _, program = case
    shape = shape_of(program)
    plain = shape.program()
    assert plain.structural_key() == program.structural_key()
    again = shape_of(plain)
    assert again.plain == shape.plain and again.type == shape.type
    assert shape.space * shape.reduction >= 1 and len(shape.extents) == len(again.extents)


@given(programs())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_a_schedule_in_other_names_applies_and_comes_back(case: tuple[str, Any]) -> None:
    _, program = case
    here = shape_of(program)
    plain = here.program()
    there = shape_of(plain)
    for schedule in all_schedules(program):
        other = renamed(schedule, here, there)
        nest = _core.apply_schedule(plain, other)
        assert parts_of(other).numbers == parts_of(schedule).numbers
        assert renamed(other, there, here) == schedule
        assert len(str(nest.text()).splitlines()) == len(
            str(_core.apply_schedule(program, schedule).text()).splitlines()
        )


@given(pairs())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_a_schedule_of_another_shape_computes_the_program(case: tuple[Any, Any]) -> None:
    a, b = case
    here, there = shape_of(a), shape_of(b)
    assert here.type == there.type
    for schedule in itertools.islice(all_schedules(b), 4):
        moved = transplanted(schedule, there, here, a)
        if moved is not None:
            kernel = _core.compile_nest(_core.apply_schedule(a, moved))
            assert kernel.verify(a).passed


def test_many_schedules_move_to_a_neighbour() -> None:
    form = "y[b,o,h,w] = sum[c,r,s] x[b,c,h+r-1,w+s-1] * k[o,c,r,s]"
    a = program_of(form, dict(o=32, h=14, w=15, c=24))
    moved = total = 0
    for sizes in (dict(o=32, h=14, w=28, c=24), dict(o=64, h=28, w=30, c=48)):
        b = program_of(form, sizes)
        for schedule in all_schedules(b):
            total += 1
            moved += transplanted(schedule, shape_of(b), shape_of(a), a) is not None
    assert moved >= total / 4


@given(programs())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_features_count_something_and_lie_in_their_own_ranges(case: tuple[str, Any]) -> None:
    _, program = case
    here = shape_of(program)
    same = distance(here, here)
    assert same.r1 == same.r2 == 1 and same.steps == 0
    for schedule in all_schedules(program):
        found = features_of(program, schedule, machine_model(), 2)
        assert min(found.tasks, found.tiles, found.packed_bytes, found.lines, found.panels) >= 1
        assert outside(same, found.ratios(found)) <= 0


def test_features_of_a_product() -> None:
    program = program_of("y[m,n] = sum[k] a[m,k] * b[k,n]", dict(m=32, n=64, k=16))
    schedule = _core.Schedule.parse(
        "schedule f32\nsplit y loops=m numbers=4\nsplit y loops=n numbers=8\n"
        "reorder y loops=m_o,n_o,k,m_i,n_i\nvectorize y loops=n_i\nregister_tile y loops=m_i,n_i\n"
        "parallel y loops=m_o\n"
    )
    found = features_of(program, schedule, machine_model(), 2)
    assert (found.tasks, found.tiles, found.packed_bytes, found.panels) == (8, 64, 1, 1)
    assert sketch_of(schedule) == "vectorize y n; register_tile y m n"
    assert parts_of(schedule).numbers == (4, 8)


@given(pairs())
@settings(deadline=None, max_examples=60)
def test_bridges_are_below_both(case: tuple[Any, Any]) -> None:
    a, b = (shape_of(program) for program in case)
    made = bridge_program(a, b)
    if comparable(a, b):
        assert made is None
    elif made is not None:
        shape = shape_of(made)
        assert shape.extents == tuple(map(min, a.extents, b.extents))
        assert comparable(shape, a) and comparable(shape, b)
        assert bridge_programs([a, b]) == [made]
        assert bridge_programs([a, b, shape]) == []


def test_a_bridge_of_different_strides_has_the_smaller_one() -> None:
    one = program_of("y[c,h] = sum[r] x[c,2*h+r] * k[c,r]", dict(c=4, h=9))
    other = _core.Program.parse("y[c,h] = sum[r] x[c,3*h+r] * k[c,r]", sizes=dict(c=5, h=8, r=3))
    assert shape_of(one).type == shape_of(other).type
    made = bridge_program(shape_of(one), shape_of(other))
    wanted = _core.Program.parse("y[c,h] = sum[r] x[c,2*h+r] * k[c,r]", sizes=dict(c=4, h=8, r=3))
    assert made is not None and made.structural_key() == wanted.structural_key()


def test_strides_and_paddings_are_of_one_type_and_bridged_without() -> None:
    forms = ("x[b,c,h+r-1,w+s-1]", "x[b,c,2*h+r,2*w+s]", "x[b,c,h+r,w+s]")
    sizes = [dict(o=8, c=12, h=9, w=9), dict(o=12, c=8, h=6, w=6), dict(o=4, c=16, h=12, w=12)]
    shapes = [
        shape_of(
            _core.Program.parse(
                f"y[b,o,h,w] = sum[c,r,s] {form} * k[o,c,r,s]",
                sizes={**size, "b": 1, "r": 3, "s": 3},
            )
        )
        for form, size in zip(forms, sizes, strict=True)
    ]
    assert len({shape.type for shape in shapes}) == 1
    for a, b in itertools.permutations(shapes, 2):
        made = bridge_program(a, b)
        assert made is not None
        assert shape_of(made).extents == tuple(map(min, a.extents, b.extents))
        kernel = _core.compile_nest(_core.apply_schedule(made, _core.default_schedule(made)))
        assert kernel.verify(made).passed
    scaled = _core.Program.parse("y[i] = 2 * x[i]", sizes={"i": 3})
    assert (
        shape_of(scaled).type != shape_of(_core.Program.parse("y[i] = x[i]", sizes={"i": 3})).type
    )


# --- records -------------------------------------------------------------------------------------------------------


MATMUL = "y[m,n] = sum[k] a[m,k] * b[k,n]"


def quick() -> _core.MeasureOptions:
    options = _core.MeasureOptions()
    options.samples, options.sample_s, options.limit_s = 3, 1e-4, 60.0
    return options


def matmul(m: int = 24, n: int = 32, k: int = 20) -> Any:
    return program_of(MATMUL, dict(m=m, n=n, k=k))


def record_of(program: Any, us: float, **changes: Any) -> Record:
    schedule = _core.default_schedule(program)
    (measured,) = _core.measure_schedules(program, [schedule], quick())
    record = make_record(program, schedule, measured, threads=1, origin="counted")
    return msgspec.structs.replace(record, median_us=us, **changes)


def test_a_record_holds_sketch_numbers_and_features(tmp_path: Path) -> None:
    record = record_of(matmul(), 5.0)
    assert record.sketch and record.numbers and record.features is not None
    store = RecordStore(tmp_path / "r.jsonl")
    store.add([record])
    assert list(store) == [record]
    # As older ones wrote it: a trace, and what is the family now as its sketch, or nothing of that.
    line = msgspec.json.decode(msgspec.json.encode(record))
    trace = {"version": 1, "schedule": msgspec.Raw(record.trace().to_json().encode())}
    for name in ("rewrites", "sketch", "family"):
        del line[name]
    told = line | trace | {"sketch": record.family, "numbers": [1, 2, 3]}
    for name in ("numbers", "features"):
        del line[name]
    store.path.write_bytes(
        b"".join(msgspec.json.encode(one) + b"\n" for one in (told, line | trace))
    )
    upgraded, old = store
    assert upgraded == record
    assert old.features is None and not old.family and old.trace() == record.trace()


def test_the_store_knows_neighbours_nearest_first(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r.jsonl")
    near, far = matmul(24, 64), matmul(96, 256, 80)
    store.add(
        [
            record_of(far, 9.0),
            record_of(near, 5.0),
            record_of(near, 4.0),
            record_of(matmul(12, 64), 1.0),  # neither larger nor smaller
            record_of(matmul(24, 33), 1.0, machine="another"),
            record_of(matmul(24, 34), 1.0, threads=2),
            record_of(matmul(24, 35), 1.0, versions={"syno": "0.0.0"}),
            record_of(program_of("y[i,j] = x[j,i]", dict(i=24, j=32)), 1.0),
        ]
    )
    found = store.neighbours(matmul(), "float32", 1)
    assert [record.median_us for record in found] == [4.0, 9.0]
    assert len(store.neighbours(matmul(), "float32", 1, limit=1)) == 1
    (there,) = store.neighbours(matmul(), "float32", 1, "another")
    assert there.machine == "another"
    store.add([record_of(matmul(), 7.0)])
    assert store.neighbours(matmul(), "float32", 1)[0].median_us == 7.0  # the program itself


def test_records_serve_programs_of_other_names(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        record_store().add([record_of(matmul(), 5.0)])
        other = syno.Operator.parse("zz[i,j] = sum[l] p[i,l] * q[l,j]", i=24, j=32, l=20)
        kernel = other.compile()
        assert kernel.origin == "recorded" and kernel.verify().passed


def test_records_age_out_by_machine_version_and_date(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r.jsonl")
    assert store.age_out() == 0
    store.add(
        [
            record_of(matmul(), 1.0),
            record_of(matmul(), 2.0, machine="another"),
            record_of(matmul(), 3.0, versions={"syno": "0.0.0"}),
            record_of(matmul(), 4.0, measured_at="2001-01-01T00:00:00+00:00"),
        ]
    )
    with store.path.open("ab") as out:
        out.write(b"\xff\xfe damaged\n")
    assert store.age_out(other_versions=True) == 2
    assert store.age_out(machines=[next(iter(store)).machine]) == 1
    moment = datetime.datetime(2002, 1, 1, tzinfo=datetime.timezone.utc)
    assert store.age_out(before=moment) == 1
    assert [record.median_us for record in store] == [1.0]
    store.add([record_of(matmul(), 6.0)])  # a writer finds the file that took the old one's place
    assert len(list(store)) == 2 and store.damaged == 0
    assert this_version() == next(iter(store)).versions


@pytest.fixture(scope="module")
def some_records() -> list[Record]:
    return [record_of(matmul(8 * i, 32), float(i)) for i in range(1, 5)]


@given(st.integers(0, 2**32))
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_store_loses_the_damaged_lines_alone(
    some_records: list[Record], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    draw = random.Random(seed)
    store = RecordStore(tmp_path_factory.mktemp("store") / "r.jsonl")
    lines = [msgspec.json.encode(record) for record in some_records]
    whole = draw.randrange(len(lines))
    for i in range(len(lines)):
        if i == whole:
            continue
        line = bytearray(lines[i])
        for _ in range(draw.randint(1, 5)):
            at = draw.randrange(len(line))
            match draw.randrange(4):
                case 0:
                    line[at] = draw.randrange(256)
                case 1:
                    del line[at:]
                case 2:
                    line[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 8)))
                case _:
                    del line[at : at + draw.randint(1, 40)]
            if not line:
                break
        lines[i] = bytes(line)
    store.path.write_bytes(b"\n".join(lines) + draw.choice([b"", b"\n", b"\n{", b"\n\0\0\0\n"]))
    read = list(store)
    assert some_records[whole] in read
    store.best(matmul(), "float32", 1)
    store.neighbours(matmul(), "float32", 1)
    store.add([some_records[0]])
    assert list(store)[-1] == some_records[0]
    store.age_out(other_versions=False)
    assert some_records[whole] in list(store) and store.damaged == 0


# --- candidates ----------------------------------------------------------------------------------------------------


def test_candidates_have_a_parents_sketch_lie_in_its_ranges_and_repeat() -> None:
    program = matmul(48, 64, 40)
    records = [record_of(matmul(), 5.0), record_of(matmul(24, 64, 40), 6.0)]
    found = candidates_for(program, records, limit=10)
    again = candidates_for(program, records, limit=10)
    assert [c.schedule.text() for c in found.ranked] == [c.schedule.text() for c in again.ranked]
    assert 0 < len(found.ranked) <= 10 and len(found.parents) == 2
    assert len({c.schedule.text() for c in found.ranked}) == len(found.ranked)
    sketches = {parent.sketch for parent in found.parents}
    for candidate in found.ranked:
        _core.apply_schedule(program, candidate.schedule)
        if candidate.origin == "predicted":
            assert sketch_of(candidate.schedule) not in sketches
            continue
        assert candidate.origin == "transplanted" or sketch_of(candidate.schedule) in sketches
        far = min(outside(p.distance, candidate.features.ratios(p.features)) for p in found.parents)
        assert candidate.outside == max(0.0, far)
    assert "predicted" in str(found) and "predicted" in found._repr_html_()


def test_every_second_candidate_is_what_the_model_ranks_first_whatever_its_sketch() -> None:
    """Where the parent has a poor sketch, no candidate of that sketch would be any good."""
    program, record = matmul(48, 64, 40), record_of(matmul(), 5.0)
    plain = _core.Schedule().add("reorder", "y", loops=["m", "k", "n"])
    slow = record.with_schedule(plain)
    space = _core.ScheduleSpace(program, machine_model())
    drawn = [found for found in map(space.sample, range(256)) if found is not None]
    least = min(one.predicted_s for one in drawn)
    texts = {str(one.schedule.text()) for one in drawn}
    for limit in (2, 3, 8):
        found = candidates_for(program, [slow], limit=limit, guard=1e9)
        origins = [candidate.origin for candidate in found.ranked]
        assert len(origins) == limit and "transplanted" in origins
        assert origins.count("predicted") >= limit // 2
        assert min(candidate.predicted_s for candidate in found.ranked) <= least
        assert all(str(c.schedule.text()) in texts for c in found.ranked if c.origin == "predicted")
    assert candidates_for(program, [slow], limit=1, guard=1e9).ranked[0].origin == "transplanted"


def test_without_a_neighbour_there_is_a_search_instead() -> None:
    found = candidates_for(matmul(), [record_of(matmul(12, 64), 1.0)])
    assert found.search and not found.ranked
    with pytest.raises(ShapeError, match="limit=0"):
        candidates_for(matmul(), [], limit=0)


def test_the_guard_asks_for_a_search_where_nothing_promises_enough() -> None:
    record = record_of(matmul(), 5.0)
    plain = _core.Schedule().add("reorder", "y", loops=["m", "k", "n"])
    slow = record.with_schedule(plain)
    found = candidates_for(matmul(48, 64, 40), [slow], limit=4)
    assert found.gap > 0.1 and found.search
    assert not candidates_for(matmul(48, 64, 40), [slow], limit=4, guard=1e9).search


def test_further_records_join_where_a_search_would_take_the_place_of_a_reuse(
    tmp_path: Path,
) -> None:
    good = record_of(matmul(), 5.0)
    plain = _core.Schedule().add("reorder", "y", loops=["m", "k", "n"])
    slow = good.with_schedule(plain)
    program = matmul(48, 64, 40)
    with syno.config.config(cache=str(tmp_path)):
        common: dict[str, Any] = dict(budget=2, options=quick(), progress="off", keep=False)
        _, alone = reuse(slow, program, **common)
        _, joined = reuse(slow, program, further=[good], **common)
        _, enough = reuse(good, program, further=[slow], **common)
    assert alone.search and len(alone.parents) == 1
    assert not joined.search and len(joined.parents) == 2
    assert not enough.search and len(enough.parents) == 1


def test_a_reuse_measures_within_its_budget_and_is_kept(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        tune(matmul(), trials=6, options=quick(), progress="off")
        session = tmp_path / "trials.jsonl"
        tuned, found = reuse(
            None,
            matmul(24, 64),
            budget=3,
            guard=1e9,
            options=quick(),
            session=session,
            progress="off",
        )
        assert found.parents and not found.search
        assert 2 <= tuned.trials <= 5 and tuned.measured == tuned.trials
        again, _ = reuse(
            None,
            matmul(24, 64),
            budget=3,
            guard=1e9,
            options=quick(),
            session=session,
            progress="off",
        )
        assert again.measured <= 3  # what is on record now adds a parent
        assert record_store().best(matmul(24, 64), "float32", 1) is not None
        searched, nothing = reuse([], matmul(), budget=2, options=quick(), progress="off")
        assert nothing.search and searched.trials == 4
        with pytest.raises(KernelError, match="budget"):
            reuse([], matmul(), budget=0)
        with pytest.raises(ArgumentError, match="guard"):
            reuse([], matmul(), guard=-1.0)


def test_clusters_are_cliques_and_each_has_one_that_is_tuned() -> None:
    members = [(8, 8), (8, 16), (7, 7), (7, 14), (11, 13)]
    assert similarity((8, 8), (8, 8)) == 1
    assert similarity((8, 8), (8, 16)) == similarity((8, 16), (8, 8)) < 1
    parts = clusters(members, 0.5)
    assert sorted(i for part in parts for i in part) == list(range(5))
    for part in parts:
        assert all(similarity(members[i], members[j]) >= 0.5 for i in part for j in part)
    edges = selected(members, 0.5)
    assert sorted(child for _, child in edges) == list(range(5))
    assert sum(parent < 0 for parent, _ in edges) == len(parts)


def test_a_store_that_cannot_be_written_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RecordStore(tmp_path / "r.jsonl")
    store.add([record_of(matmul(), 1.0, machine="another")])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("syno.tuning.records.write_whole", full)
    with pytest.raises(FormatError, match="as it was"):
        store.age_out(machines=[])
    assert len(list(store)) == 1
