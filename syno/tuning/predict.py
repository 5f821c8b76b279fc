"""How long a program should take on a machine, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno import _core
from syno.kernels.construct import Policy, construct
from syno.machines.model import MachineModel, machine_model
from syno.support.arguments import checked
from syno.support.numbers import MOST_THREADS, whole

if TYPE_CHECKING:
    from syno.operators.operator import Operator

Prediction = _core.Prediction


@checked(but=("threads",))
def predict(
    operator: Operator | _core.Program,
    *,
    threads: int = 1,
    dtype: str = "float32",
    schedule: _core.Schedule | None = None,
    policy: Policy = "counted",
    machine: MachineModel | None = None,
    cold: bool = False,
) -> Prediction:
    """Predicts the latency of an operator's kernel from the machine model: well below a millisecond.

    Args:
        operator: at one valuation; or a concrete program.
        threads: of a call.
        dtype: of the arguments.
        schedule: its decisions; default those of `policy`.
        policy: "counted" takes a tenth of the time of "graph", what kernels get (see `construct`).
        machine: the model; default this machine's.
        cold: arguments come from main memory instead of the nearest cache that holds them.
    Returns:
        `seconds` of one call, `bottleneck`, and what they are made of.
    Raises:
        ShapeError: the operator is symbolic with several valuations.
        ScheduleError: `schedule` does not apply.
        UnknownName: no such dtype or policy.
    """
    threads = whole("predict", "threads", threads, 1, MOST_THREADS)
    program = (
        operator
        if isinstance(operator, _core.Program)
        else operator._one_valuation("predictions").program
    )
    if schedule is None:
        return construct(
            program,
            dtype=dtype,
            threads=threads,
            machine=machine,
            policy=policy,
            cold=cold,
            explain=False,
        ).prediction
    nest = _core.apply_schedule(program, schedule)
    return _core.predict_nest(nest, machine or machine_model(), threads=threads, cold=cold)
