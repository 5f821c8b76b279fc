"""Which derived programs are compiled, in what order, until enough of them are accurate."""

from __future__ import annotations

from typing import Any

from syno import _core
from syno.deriving.derivations import Derived
from syno.deriving.judge import Judge
from syno.deriving.trial import Trial
from syno.errors import KernelError
from syno.operators.operator import Operator


def test_inaccurate_programs_end_no_search_for_accurate_ones() -> None:
    """Windows of five taps: the five fastest programs round too much, and all were compiled while the sixth, predicted to
    take 1.5 times as long as the first of them, was not looked at."""

    class Claims(Judge):
        def __init__(self) -> None:
            pass

        def errors(self, kernel: Any) -> dict[str, float]:
            return {"normal": float(kernel)}

    op = Operator.parse("y[i] = sum[j] x[i+j] * k[j]", i=64, j=3)

    def program(predicted_us: float, *tiles: int) -> Derived:
        path = tuple(("toom_cook", _core.RewriteSite("y", "i", "j", numbers=[n, 3])) for n in tiles)
        known = roughness[tiles[0]] if tiles else 1.0
        return Derived(op, path, not path, op, ("k",), roughness=known, predicted_us=predicted_us)

    roughness = {8: 4000.0, 6: 40.0, 4: 20.0, 2: 4.0}
    original = program(100.0)
    waiting = [original, program(10.0, 8), program(11.0, 8), program(19.0, 6), program(70.0, 4)]
    waiting += [program(71.0, 2), program(72.0, 4), program(120.0, 2)]
    error = {8: 1e-3, 6: 1.2e-5, 4: 5e-6, 2: 1e-6}
    tried: list[float | None] = []
    trial = Trial(Claims(), original, 2, 1e-5, 1.5)
    everything = list(waiting)
    while batch := trial.next(waiting):
        for one in batch:
            tried.append(one.predicted_us)
            worst = error[one.path[0][1].numbers[0]] if one.path else 1e-7
            assert trial.compared(one, worst)  # type: ignore[arg-type]
    # The second one by the steps of the first waits until it is known what these lose.
    assert tried == [100.0, 10.0, 19.0, 70.0, 71.0]
    assert trial.accurate == 2
    assert "rounds like" in everything[2].note
    assert "1.20e-05 above 1.00e-05" in everything[3].note
    # What no kernel is made of counts as a try, the original too.
    waiting = [original, program(10.0, 8), *[program(20.0 + n, 2) for n in range(9)]]
    trial = Trial(Claims(), original, 2, 1e-5, 1.5)
    failed = 0
    while batch := trial.next(waiting):
        for one in batch:
            trial.failed(one, KernelError("no registers"))
            failed += 1
    assert (failed, trial.tries, len(waiting)) == (9, 8, 2)
    # One that rounds by the steps of one that was much too rough is not compiled.
    waiting = [original, program(10.0, 8), program(30.0, 8), program(40.0, 2)]
    trial = Trial(Claims(), original, 1, 1e-5, 1.5)
    rough = waiting[2]
    tried.clear()
    while batch := trial.next(waiting):
        for one in batch:
            tried.append(one.predicted_us)
            trial.compared(one, error[one.path[0][1].numbers[0]] if one.path else 1e-7)  # type: ignore[arg-type]
    assert tried == [100.0, 10.0, 40.0]
    assert "rounds like" in rough.note
    # Of those that round alike, more are compiled together once one is accurate.
    waiting = [original, *[program(20.0 + n, 2) for n in range(5)]]
    trial = Trial(Claims(), original, 3, 1e-5, 1.5)
    sizes = []
    while batch := trial.next(waiting):
        sizes.append(len(batch))
        for one in batch:
            trial.compared(one, 1e-6)  # type: ignore[arg-type]
    assert sizes == [2, 2] and trial.accurate == 3
    # What rounds like one that is too inaccurate by other steps, or far worse, is not compiled; what rounds less is.
    waiting = [original, program(10.0, 6), program(20.0, 6), program(21.0, 8), program(30.0, 4)]
    trial = Trial(Claims(), original, 1, 1e-5, 1.5)
    tried.clear()
    while batch := trial.next(waiting):
        for one in batch:
            tried.append(one.predicted_us)
            trial.compared(one, error[one.path[0][1].numbers[0]] if one.path else 1e-7)  # type: ignore[arg-type]
    assert tried == [100.0, 10.0, 30.0]
