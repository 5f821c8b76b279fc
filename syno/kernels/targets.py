"""Kernels for other CPUs than this one: machine code as an object, made here and linked there.

target = syno.kernels.targets.Target.named("aarch64-linux-gnu", "cortex-a76")
made = operator.compile_object(target="aarch64-linux-gnu", cpu="cortex-a76")
Path("op.o").write_bytes(made.object_bytes())
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from syno import _core
from syno.errors import KernelError, unknown_name
from syno.kernels.construct import construct
from syno.kernels.kernel import DTYPES
from syno.kernels.machine_code import MachineCode
from syno.kernels.spills import without_spills
from syno.machines.model import MachineModel

if TYPE_CHECKING:
    from syno.operators.operator import Operator

#: CPUs with a machine file of public figures; each says where they come from.
MACHINES = ("cortex-a76", "neoverse-v1")


def machine_of(cpu: str) -> MachineModel:
    """The machine model of a CPU that nobody measured here, from public figures.

    Args:
        cpu: one of `MACHINES`.
    Raises:
        UnknownName: there is no file of it.
    """
    if cpu not in MACHINES:
        raise unknown_name("machine", cpu, MACHINES)
    file = resources.files("syno.machines") / f"{cpu}.json"
    return MachineModel.from_json(file.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Target:
    """A triple, a CPU of it, and the machine model that schedules are constructed from."""

    triple: str
    cpu: _core.Cpu
    name: str
    """Of the CPU, as it was asked for."""
    machine: MachineModel

    @classmethod
    def named(
        cls, triple: str | None, cpu: str | None = None, machine: MachineModel | None = None
    ) -> Target:
        """Looks a target up.

        Args:
            triple: "aarch64-linux-gnu" or "x86_64-linux-gnu"; None: this machine's.
            cpu: a name that LLVM knows there, "generic" (default), or "generic+sve256": some CPU on AArch64
                whose SVE registers have 256 bits (128, 512).
            machine: default the file of public figures where there is one (`MACHINES`), else typical rates.
        Raises:
            UnknownName: no such target, or no such CPU of it; the message lists the valid names.
            KernelError: the machine has other vectors than the CPU.
        """
        name = cpu or "generic"
        found = _core.cpu_named(name, triple)
        if machine is None:
            machine = machine_of(name) if name in MACHINES else _core.describe_machine(found)
        if machine.vector_bits != found.vector_bits:
            raise KernelError(
                f"[target] the machine {machine.name!r} has vectors of {machine.vector_bits} bits, code for {name} "
                f"has {found.vector_bits}; give a machine file of this CPU"
            )
        return cls(triple or found.triple, found, name, machine)

    def __str__(self) -> str:
        sve = self.cpu.scalable_bits
        vectors = f", SVE registers of exactly {sve} bits" if sve else ""
        return f"{self.name} ({self.triple}{vectors})"


class KernelObject(MachineCode):
    """Machine code of one concrete operator for another CPU; `compile_object()` makes it.

    Its loop nest was compiled for this machine, too, and compared with the interpreter; calling computes with
    that.
    """

    def __init__(
        self,
        core: _core.Kernel,
        here: _core.Kernel,
        operator: Operator,
        dtype: str,
        schedule: _core.Schedule,
        target: Target,
    ) -> None:
        self._core = core
        self._here = here
        self.operator = operator
        self.dtype = dtype
        self.schedule = schedule
        self.target = target

    def __call__(self, *arrays: Any) -> Any:
        """What the loop nest computes on this machine."""
        return self._here(*arrays)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict(self.operator.shapes)

    def __repr__(self) -> str:
        return f"KernelObject({self.operator.expr}; {self.dtype}, for {self.target})"


def compile_object(operator: Operator, target: Target, *, dtype: str = "float32") -> KernelObject:
    """Compiles an operator for another CPU, without running any of that code.

    Args:
        operator: at one valuation.
        dtype: "float32", "float64" or "bfloat16"; all arrays of a call have it.
    Raises:
        ShapeError: the operator is symbolic with several valuations.
        KernelError: the loop nest, compiled for this machine, computes something else than the operator.
        UnknownName: no such dtype.
    """
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    concrete = operator._one_valuation("kernels")
    program = concrete.program
    made = construct(program, dtype=dtype, machine=target.machine, explain=False).schedule
    schedule = without_spills(
        program, made, dtype=dtype, threads=1, machine=target.machine, cpu=target.cpu
    )
    nest = _core.apply_schedule(program, schedule)
    here = _core.compile_nest(nest)
    result = here.verify(program, 0)
    if not result.passed:
        raise KernelError(
            f"[target] the loop nest for {target} gave max_rel_err {result.max_rel_err:.1e} (limit "
            f"{result.limit:.0e}) against the reference. {result.detail}"
        )
    core = _core.compile_nest(nest, cpu=target.cpu)
    return KernelObject(core, here, concrete, dtype, schedule, target)
