"""Search by measuring: reproducible, resumable, honest about failures; records that are checked and merged."""

from __future__ import annotations

import errno
import json
import os
import types
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import syno
from syno import _core
from syno.errors import FormatError, KernelError, ShapeError, UnknownName
from syno.kernels.construct import choose_schedule
from syno.machines.model import machine_model
from syno.tuning.cost_model import BoostedModel, LinearModel, make_model, rank_correlation
from syno.tuning.records import RecordStore, decode, encode, make_record, record_store
from syno.tuning.search import session_file, tune

MATMUL = "y[m,n] = sum[k] a[m,k] * b[k,n]"


def matmul(m: int = 33, n: int = 47, k: int = 29) -> syno.Operator:
    return syno.Operator.parse(MATMUL, m=m, n=n, k=k)


def quick() -> _core.MeasureOptions:
    options = _core.MeasureOptions()
    options.samples, options.sample_s, options.limit_s = 3, 1e-4, 60.0
    return options


def record_of(operator: syno.Operator, us: float, machine: str | None = None) -> object:
    schedule = _core.default_schedule(operator.program)
    (measured,) = _core.measure_schedules(operator.program, [schedule], quick())
    record = make_record(operator.program, schedule, measured, threads=1, origin="counted")
    changes: dict[str, object] = {"median_us": us}
    if machine:
        changes["machine"] = machine
    return msgspec.structs.replace(record, **changes)


def test_finds_at_least_the_constructed_schedule(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        calls: list[int] = []
        found = tune(
            matmul(), trials=12, options=quick(), progress=lambda done, *_: calls.append(done)
        )
        assert found.trials == 12 and calls[-1] == 12
        assert 0 < found.gap <= 1
        assert sum(found.outcomes.values()) == 12
        assert "trials" in str(found) and json.dumps(found.to_dict())
        # The best is on record, and is what the next kernel is made of.
        kernel = matmul().compile()
        assert kernel.origin == "recorded" and kernel.schedule == found.schedule
        assert kernel.verify().passed


def test_begins_with_every_sketch_by_count(tmp_path: Path) -> None:
    session = tmp_path / "trials.jsonl"
    operator = syno.Operator.parse("y[m,n] = sum[k] a[m,k] * b[n,k]", m=64, n=64, k=64)
    starts = _core.ScheduleSpace(operator.program, machine_model()).starts()
    assert len(starts) > 1
    tune(operator, trials=2 + len(starts), options=quick(), session=session, keep=False)
    records = list(RecordStore(session))
    tried = {str(record.trace().text()) for record in records if record.origin != "mutated"}
    near = [s for s in starts if s.predicted_s <= 3 * starts[0].predicted_s]
    assert {str(start.schedule.text()) for start in near} <= tried


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    session = tmp_path / "trials.jsonl"
    first = tune(matmul(), trials=6, options=quick(), session=session, keep=False)
    assert first.measured == first.trials == 6
    lines = session.read_text().splitlines()
    again = tune(matmul(), trials=6, options=quick(), session=session, keep=False)
    assert again.measured < again.trials == 6
    assert session.read_text().splitlines()[: len(lines)] == lines


@pytest.mark.parametrize("model", ["linear", "boosted"])
def test_cost_models_learn_an_order(model: str) -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((200, 6))
    targets = 2 * features[:, 0] - features[:, 3] + 0.1 * random.standard_normal(200)
    learned = make_model(model)
    assert not learned.predict(features).any()
    learned.fit(features[:150], targets[:150])
    assert rank_correlation(learned.predict(features[150:]), targets[150:]) > 0.8


def test_cost_models_by_name() -> None:
    assert isinstance(make_model("linear"), LinearModel)
    assert isinstance(make_model("boosted"), BoostedModel)
    with pytest.raises(UnknownName, match="boosted, linear"):
        make_model("random")


def test_a_bad_candidate_is_an_outcome() -> None:
    program = matmul().program
    bad = _core.Schedule().add("unroll", "y", loops=["nothing"])
    results = _core.measure_schedules(program, [bad, _core.Schedule()], quick())
    assert [r.outcome for r in results] == ["not applicable", "ok"]
    assert "nothing" in results[0].reason


BAD = ("wrong", "crashed", "timed out", "too much memory")


def test_a_search_goes_on_past_bad_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that goes wrong with a candidate is counted and remembered; none of it is ever the best."""
    session = tmp_path / "trials.jsonl"
    real = _core.measure_schedules
    given: list[str] = []

    def measured(program: object, schedules: list[object], options: object) -> list[object]:
        results: list[object] = []
        for result in real(program, schedules, options):
            outcome = "ok" if len(given) < 2 else ("ok", *BAD)[len(given) % 5]
            given.append(outcome)
            if outcome == "ok":
                results.append(result)
                continue
            # Times nobody may believe: a kernel that stops early is fast.
            fields = dict.fromkeys(("median_s", "q1_s", "q3_s"), 1e-12)
            results.append(
                types.SimpleNamespace(
                    outcome=outcome,
                    reason="as asked",
                    samples=3,
                    compile_ms=1.0,
                    spills=0,
                    note="",
                    **fields,
                )
            )
        return results

    monkeypatch.setattr(_core, "measure_schedules", measured)
    with syno.config.config(cache=str(tmp_path / "cache")):
        found = tune(matmul(), trials=20, options=quick(), session=session, batch=5)
        assert found.trials == len(given) == 20
        assert found.outcomes == {name: given.count(name) for name in ("ok", *BAD)}
        assert all(found.outcomes[name] >= 3 for name in BAD)
        assert found.best_us > 1e-3
        kept = [record.outcome for record in record_store()]
        assert kept == ["ok"]
        assert [record.outcome for record in RecordStore(session)] == given
        # On the same file again: what was bad is not tried again.
        again = tune(matmul(), trials=20, options=quick(), session=session, batch=5)
        assert again.measured < 20
        for name in BAD:
            assert name in str(found)


def test_records_are_read_back_and_applied(tmp_path: Path) -> None:
    record = record_of(matmul(), 5.0)
    assert decode(encode(record), "here") == record
    broken = msgspec.structs.replace(record, sketch=("fold",))
    other = _core.Schedule().add("unroll", "y", loops=["nothing"])
    foreign = record.with_schedule(other)
    store = RecordStore(tmp_path / "r.jsonl")
    for bad in (broken, foreign):
        with pytest.raises(FormatError, match="does not apply"):
            encode(bad)
        with pytest.raises(FormatError):
            store.add([bad])
    assert not list(store)


def test_damaged_lines_are_skipped(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r.jsonl")
    store.add([record_of(matmul(), 5.0)])
    with store.path.open("a") as out:
        out.write('{"version": 1, "key"')  # a process was killed here
    store.add([record_of(matmul(), 4.0)])
    assert len(list(store)) == 2 and store.damaged == 1
    found = store.best(matmul().program, "float32", 1)
    assert found is not None and found[0].median_us == 4.0


def test_damaged_traces_are_passed_over_and_measured_again(tmp_path: Path) -> None:
    session = tmp_path / "trials.jsonl"
    tune(matmul(), trials=3, options=quick(), session=session, keep=False)
    records = list(RecordStore(session))
    with session.open("w") as out:  # as a disk that lost bytes leaves them
        for i, record in enumerate(records):
            line = json.loads(msgspec.json.encode(record))
            if i == 0:
                line["numbers"] = line["numbers"][1:]
            elif i == 1:
                line["sketch"] = ["lost"]
            out.write(json.dumps(line) + "\n")
    again = tune(matmul(), trials=3, options=quick(), session=session, keep=False)
    assert again.trials == 3 and again.measured >= 1


def test_the_best_record_is_one_that_applies(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        store = record_store()
        good = record_of(matmul(), 5.0)
        store.add([good])
        # The fastest by its time has a trace of loops that the program does not have.
        other = _core.Schedule().add("unroll", "y", loops=["nothing"])
        bad = msgspec.structs.replace(good, median_us=1.0).with_schedule(other)
        with store.path.open("ab") as out:
            out.write(msgspec.json.encode(bad) + b"\n")
        found = store.best(matmul().program, "float32", 1)
        assert found is not None and found[0].median_us == 5.0
        assert store.best(matmul().program, "float32", 1) == found
        assert matmul().compile().origin == "recorded"
        store.add([record_of(matmul(), 4.0)])  # what is known is looked for again in a changed file
        newer = store.best(matmul().program, "float32", 1)
        assert newer is not None and newer[0].median_us == 4.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_rank_correlation_is_that_of_mean_ranks(pairs: list[tuple[int, int]]) -> None:
    a, b = ([float(pair[i]) for pair in pairs] for i in (0, 1))
    found = rank_correlation(a, b)
    assert found == pytest.approx(rank_correlation(b, a))
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found == 0
        return

    def ranks(values: list[float]) -> list[float]:
        return [sum(v < x for v in values) + (values.count(x) - 1) / 2 for x in values]

    assert found == pytest.approx(float(np.corrcoef(ranks(a), ranks(b))[0, 1]))


def test_rank_correlation_of_little_is_none() -> None:
    assert rank_correlation([], []) == rank_correlation([1.0], [2.0]) == 0


@pytest.mark.parametrize("ratio", [0.8, 1.25, 0.0])
def test_what_is_found_takes_the_place_of_a_record_that_it_beats_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: float
) -> None:
    """A median of another occasion, however low, says nothing against it."""
    with syno.config.config(cache=str(tmp_path)):
        known = _core.Schedule()  # plain loops, which no search finds
        lucky = record_of(matmul(), 1e-3).with_schedule(known)
        record_store().add([lucky])
        compared: list[bool] = []

        def in_turns(program: object, a: object, b: object, options: object) -> float:
            compared.append(b == known)
            return ratio if b == known else 1.0

        monkeypatch.setattr(_core, "compare_schedules", in_turns)
        found = tune(matmul(), trials=4, options=quick(), progress="off")
        best = record_store().best(matmul().program, "float32", 1)
        assert best is not None
        assert any(compared)
        assert best[1] == (found.schedule if 0 < ratio < 1 else known)


def test_stores_of_two_machines_merge(tmp_path: Path) -> None:
    here, there = RecordStore(tmp_path / "a.jsonl"), RecordStore(tmp_path / "b.jsonl")
    here.add([record_of(matmul(), 5.0)])
    there.add([record_of(matmul(), 1.0, machine="another"), record_of(matmul(), 3.0)])
    assert here.merge(there.path) == 2
    assert here.merge(there.path) == 0
    program = matmul().program
    mine, theirs = here.best(program, "float32", 1), here.best(program, "float32", 1, "another")
    assert mine is not None and mine[0].median_us == 3.0
    assert theirs is not None and theirs[0].median_us == 1.0
    assert here.best(program, "float32", 2) is None
    assert here.best(matmul(34).program, "float32", 1) is None
    with pytest.raises(FormatError, match="no file"):
        here.merge(tmp_path / "nothing")
    (tmp_path / "bad.jsonl").write_text("no record\n")
    with pytest.raises(FormatError, match="holds no records"):
        here.merge(tmp_path / "bad.jsonl")


def test_a_record_that_does_not_apply_is_passed_over(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        renamed = syno.Operator.parse("z[i,j] = sum[l] p[i,l] * q[l,j]", i=33, j=47, l=29)
        record_store().add([record_of(matmul(), 1e-3)])
        assert choose_schedule(matmul().program, "float32", 1, None).origin == "recorded"
        assert renamed.compile().verify().passed


def test_sizes_beyond_all_memory_get_a_sentence() -> None:
    with pytest.raises(ShapeError, match="more than 2\\^46 elements"):
        tune(matmul(m=2**30, n=2**30), trials=2, progress="off")
    with pytest.raises(ShapeError, match="does not fit 64 bits"):
        tune(matmul(m=2**38, n=2**38), trials=2, progress="off")


def test_a_disk_that_fills_up_ends_no_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: RecordStore, text: bytes) -> None:
        if text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RecordStore, "_append_locked", full)
    tuned = tune(matmul(), trials=6, session=tmp_path / "trials.jsonl", progress="off")
    assert tuned.trials == 6 and tuned.best_us > 0
    assert "No space left" in caplog.text and "SYNO_CACHE" in caplog.text


def test_a_place_that_cannot_be_written_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FormatError, match="cannot be written"):
        tune(matmul(), trials=2, session=tmp_path / "file" / "trials.jsonl", progress="off")
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "file"))
    assert session_file(matmul().program, 1, "float32") is None
    assert "trials are not kept" in caplog.text
    tune(matmul(), trials=2, progress="off")  # nothing to remember the best in, either


def test_bad_requests_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="trials=1"):
        tune(matmul(), trials=1)
    with pytest.raises(UnknownName, match="linear"):
        tune(matmul(), model="best")
    from syno.cli.tune import parse_sizes

    assert parse_sizes(["m=3", "n = 4"]) == {"m": 3, "n": 4}
    with pytest.raises(ShapeError, match="m=64"):
        parse_sizes(["m"])
