"""Kernels of operators whose weights stay the same: what depends on weights alone is computed once.

>>> import numpy as np
>>> from syno.operators.operator import Operator
>>> op = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=2, n=48, k=16)
>>> kernel = prepacked(op, ["w"])
>>> packed = kernel.pack(w=np.ones((48, 16), np.float32))
>>> float(packed(np.ones((2, 16), np.float32))[0, 0])
16.0
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from syno import _core
from syno.errors import KernelError, ShapeError, UnknownName, unknown_name
from syno.kernels.arrays import layout_of, row_major, view_of, without_gradient
from syno.kernels.cache import usable_cache
from syno.kernels.choosing import made_with, schedule_of
from syno.kernels.construct import Chosen, counted_seconds, kept_for, predicted_seconds
from syno.kernels.kernel import (
    DTYPES,
    KEPT_KERNELS,
    KEPT_LAYOUTS,
    Kernel,
    Verification,
    gainful_threads,
)
from syno.kernels.verdicts import Outcome, Verdict
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.support.numbers import MOST_LEVELS, MOST_THREADS, whole

Array = np.ndarray[Any, Any]

_ALIGNMENT = 64

# Folded constants take at most so many times the memory of those given: Winograd's F(6x6, 3x3) takes 7.1 times.
_MOST_GROWTH = 8
_SMALL_BYTES = 4096


class PrepackedKernel:
    """A verified pair of kernels: one packs constant inputs, the other one computes the operator.

    `prepacked()` makes it. Where the schedule packs nothing, the constants are kept as they are.
    """

    def __init__(
        self,
        operator: Operator,
        constants: tuple[str, ...],
        dtype: str,
        threads: int,
        schedule: _core.Schedule,
        prepack: _core.Kernel | None,
        call: _core.Kernel,
        verification: Verification,
        folded: _Folded | None = None,
    ) -> None:
        self.operator = operator
        self.constants = constants
        self.schedule = schedule
        self.verification = verification
        self.threads = threads
        self.runs_on = gainful_threads(call.nest, threads)
        self._dtype = DTYPES[dtype]
        self._prepack = prepack
        self._call = call
        self._folded = folded
        # What a call computes of its data and of `_kept`, once the constants are folded.
        self._rest = operator if folded is None else folded.call
        self._kept = constants if folded is None else folded.constants
        self._layouts: Bounded[Any, bool] = Bounded(KEPT_LAYOUTS)
        self.data = tuple(name for name in operator.inputs if name not in constants)
        """Names of the inputs that a call takes, in order."""
        kept = (name for name, written, _ in call.arguments if not written)
        read = " ".join(name for name in kept if name not in self.data)
        before = "" if folded is None else folded.once.key
        self.packing = f"{before} {prepack.key if prepack else ''} {read}"
        """Equal for kernels of one operator's constants that can share what `pack` makes of them."""

    @property
    def packs(self) -> bool:
        """Whether a call is spared anything; else it reads the constants as they are."""
        return self._prepack is not None or self._folded is not None

    @property
    def call(self) -> _core.Kernel:
        """What every call runs: of the data and the packed buffers, in the order of its `arguments`."""
        return self._call

    @property
    def codes(self) -> list[_core.Kernel]:
        """All machine code: what runs once, then what every call runs."""
        once = [] if self._folded is None else [self._folded.once._core]
        return [*once, *([] if self._prepack is None else [self._prepack]), self._call]

    @property
    def dtype(self) -> str:
        return str(self._dtype.name)

    @property
    def report(self) -> Any:
        """Of the compilation of what runs in every call."""
        return self._call.report

    def loops(self) -> str:
        """The loop nests as text: what is done once, then what a call does."""
        before = [] if self._folded is None else [self._folded.once.loops()]
        if self._prepack is not None:
            before.append(self._prepack.loops())
        return "\n".join([*before, self._call.loops()])

    def check_layout(self, arrays: Sequence[Any], out: Any) -> None:
        """Compares the code for arguments that lie like these with the reference, on generated data, once.

        Raises:
            ShapeError, KernelError: as for a call; KernelError where it computes something else.
        """
        layout = layout_of(arrays, out)
        if layout is None or self._layouts.get(layout) is not None:
            return
        code, program = self._call.for_arrays(*arrays, out=out), self._rest.program
        if self._prepack is None:
            result = code.verify(program)
        else:
            result = _core.verify_prepacked(self._prepack, code, program)
        if not result.passed:
            raise KernelError(
                f"[kernel] the code for strides {layout} gave max_rel_err {result.max_rel_err:.1e} (limit "
                f"{result.limit:.0e}) against the reference; pass row-major arrays. {result.detail}"
            )
        self._layouts.setdefault(layout, True)

    def pack(self, **constants: Any) -> Packed:
        """Packs values of all constants; later changes of the arrays are not seen.

        Args:
            constants: arrays by name, of the operator's shapes and the kernel's dtype.
        Raises:
            ShapeError: a constant is missing or of another shape.
            UnknownName: no constant has this name.
            KernelError: another dtype, or a tensor on another device than the CPU.
        """
        shapes = self.operator.shapes
        for name in constants:
            if name not in self.constants:
                raise unknown_name("constant", name, self.constants)
        given: dict[str, Array] = {}
        for name in self.constants:
            if name not in constants:
                raise ShapeError(f"[pack] the value of `{name}` is missing")
            value = constants[name]
            # Packing takes the values as they are now: no gradient flows back to a parameter.
            array = view_of(without_gradient(value.detach() if hasattr(value, "detach") else value))
            if array.shape != shapes[name]:
                raise ShapeError(
                    f"[pack] `{name}` has shape {list(array.shape)}; the kernel was made for "
                    f"{list(shapes[name])}"
                )
            if array.dtype != self._dtype:
                raise KernelError(
                    f"[pack] `{name}` is {array.dtype}; the kernel takes {self._dtype.name}"
                )
            given[name] = np.asarray(array, order="C")
        if self._folded is not None:
            given = self._folded.values(given)
        buffers = dict(given)
        if self._prepack is not None:
            arguments = zip(self._prepack.arguments, self._prepack.dtypes, strict=True)
            for (name, written, shape), dtype in arguments:
                if written:
                    buffers[name] = _aligned_zeros(tuple(shape), DTYPES[dtype])
            self._prepack.call_pointers(
                [buffers[name].ctypes.data for name, _, _ in self._prepack.arguments], 1
            )
        names = [name for name, written, _ in self._call.arguments if not written]
        kept = {name: buffers[name] for name in names if name in buffers}
        for name in self._kept:
            if name in kept:  # a call reads it itself: it must not change
                kept[name] = kept[name].copy()
        return Packed(self, self._call, kept)


class Packed:
    """An operator with the values of its constants: called with the other inputs. Thread-safe."""

    def __init__(
        self, kernel: PrepackedKernel, call: _core.Kernel, buffers: dict[str, Array]
    ) -> None:
        self.kernel = kernel
        self._call = call
        self._buffers = buffers
        names = [name for name, written, _ in call.arguments if not written]
        self._places = [
            (name, None if name in buffers else kernel.data.index(name)) for name in names
        ]

    def __call__(self, *data: Any, out: Any = None, num_threads: int | None = None) -> Any:
        """Computes the operator.

        Args:
            data: the inputs `kernel.data`, of the kernel's dtype, with any strides.
            out: an array (or a sequence of them, one an output) to write to; default new ones.
            num_threads: of syno's own pool; default as many as the kernel gains by.
        Raises:
            ShapeError, KernelError: as `Kernel.__call__`.
        """
        kernel = self.kernel
        if len(data) != len(kernel.data):
            raise ShapeError(
                f"[kernel] {len(data)} arrays for {len(kernel.data)} inputs: {', '.join(kernel.data)}"
            )
        arrays = [
            data[place] if place is not None else self._buffers[name]
            for name, place in self._places
        ]
        if hasattr(data[0] if data else None, "detach"):
            from syno.torch.native import tensor_of

            arrays = [
                each.detach() if hasattr(each, "detach") else tensor_of(each) for each in arrays
            ]
        threads = kernel.runs_on if num_threads is None else num_threads
        if not (all(map(row_major, arrays)) and (out is None or row_major(out))):
            kernel.check_layout(arrays, out)
        return self._call(*arrays, out=out, num_threads=threads)

    @property
    def unchecked(self) -> Callable[[Sequence[int], int], None]:
        """One call on addresses (`arguments()` says which) and a number of threads; nothing is checked."""
        return self._call.call_pointers

    def arguments(self) -> list[tuple[str, int | None]]:
        """(name, address) of what `unchecked` takes, in order; None where the caller gives it."""
        inputs = [
            (name, self._buffers[name].ctypes.data if name in self._buffers else None)
            for name, _ in self._places
        ]
        return [
            *inputs,
            *((name, None) for name, written, _ in self._call.arguments if written),
        ]

    @property
    def buffers(self) -> dict[str, Array]:
        """The packed constants, in the order and the dtypes that the kernel takes them."""
        return dict(self._buffers)

    @property
    def bytes(self) -> int:
        """Memory that the packed constants take."""
        return sum(buffer.nbytes for buffer in self._buffers.values())


@dataclass(frozen=True)
class _Folded:
    """What of an operator depends on its constants alone, compiled, and the operator of what is left."""

    once: Kernel
    call: Operator
    constants: tuple[str, ...]
    """The inputs of `call` that stay the same: constants of the operator, and what `once` computes."""

    def values(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Of `constants`, by name, from values of the operator's."""
        inputs = [given[name] for name in self.once.operator.inputs]
        made = self.once(*inputs)
        outputs = self.once.operator.outputs
        computed = dict(zip(outputs, [made] if len(outputs) == 1 else made, strict=True))
        return {
            name: computed[name] if name in computed else given[name] for name in self.constants
        }


def _parts_of(
    operator: Operator, names: tuple[str, ...], dtype: str
) -> tuple[Operator, Operator] | None:
    """What is computed once, and what every call computes of that; None where nothing is computed once.

    bfloat16 is not parted: between two kernels a value would be rounded that one kernel keeps in float32. Nor is
    what grows much: an image of a weight that a call computes faster than it reads.
    """
    if dtype == "bfloat16":
        return None
    parts = _core.fold_constants(operator.program, list(names))
    if parts is None:
        return None
    before, after = _core.constant_bytes(operator.program, list(names))
    if after > _MOST_GROWTH * max(before, _SMALL_BYTES):
        return None
    return Operator(parts[0]), Operator(parts[1])


def _left(once: Operator, call: Operator, constants: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs of `call` that stay the same over calls."""
    return tuple(name for name in call.inputs if name in constants or name in once.outputs)


_kernels: Bounded[tuple[Any, ...], PrepackedKernel] = Bounded(KEPT_KERNELS)


def prepacked(
    operator: Operator,
    constants: Sequence[str] | None = None,
    *,
    dtype: str = "float32",
    threads: int = 1,
    constants_from: int = 0,
    schedule: _core.Schedule | None = None,
    cache: bool = True,
    check: bool = True,
) -> PrepackedKernel:
    """Compiles an operator for constant inputs, and checks both kernels before anyone can use them.

    Args:
        operator: at one valuation.
        constants: names of inputs that stay the same over calls; default the operator's weights.
        dtype: "float32", "float64" or "bfloat16"; packed bfloat16 is kept as the float32 that is computed with.
        threads: the constructed schedule spreads work over this many.
        constants_from: an index of the machine model's levels, that the constants come from at each call: the schedule is
            constructed for that, as in a network whose weights no nearer level holds. 0: from the nearest that holds
            what the kernel reads and writes.
        schedule: decisions to use instead of the constructed ones; its `prepack` decisions count.
        cache: read and write compiled objects under `syno.config.cache_directory()`.
        check: compare with the reference. Without, its `verification` is of no points where nobody compared it before;
            for those who compare it themselves, before they choose what is checked and used.
    Raises:
        ShapeError: the operator is symbolic with several valuations; `constants_from` is no such index.
        ScheduleError: `schedule` does not apply to this operator.
        KernelError: the kernels compute something else.
        UnknownName: no such dtype or input.
    """
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    threads = whole("compile", "threads", threads, 1, MOST_THREADS)
    constants_from = whole("compile", "constants_from", constants_from, 0, MOST_LEVELS)
    concrete = operator._one_valuation("kernels")
    names = tuple(concrete.weights if constants is None else constants)
    for name in names:
        if name not in concrete.inputs:
            raise UnknownName(
                f"[prepack] no input is named {name!r}; there are: {', '.join(concrete.inputs)}"
            )
    program = concrete.program
    directory = usable_cache() if cache else None
    where = str(directory) if directory else ""
    key = (
        str(program.text()),
        dtype,
        threads,
        names,
        constants_from,
        str(schedule.text()) if schedule else "",
        os.environ.get("SYNO_CPU", ""),
        kept_for(),
    )
    if (known := _kernels.get(key)) is not None:
        return known
    codes: list[_core.Kernel] = []  # alive until the chosen one is linked again
    parts = _parts_of(concrete, names, dtype) if schedule is None else None
    folded = None
    if parts is not None:
        once, call = parts
        folded = _Folded(once.compile(dtype, cache=cache), call, _left(once, call, names))
    rest, kept = (concrete, names) if folded is None else (folded.call, folded.constants)

    def choose(anew: bool) -> Chosen:
        codes.clear()
        return schedule_of(
            rest,
            dtype=dtype,
            threads=threads,
            constants=kept,
            constants_from=constants_from,
            cache=cache,
            codes=codes,
            anew=anew,
        )

    def make(choice: Chosen) -> PrepackedKernel:
        return _compiled(concrete, names, choice.schedule, dtype, threads, where, folded, check)

    made = make(Chosen(schedule, "given")) if schedule is not None else made_with(choose, make)
    return _kernels.setdefault(key, made) if check else made


def _compiled(
    concrete: Operator,
    names: tuple[str, ...],
    chosen: _core.Schedule,
    dtype: str,
    threads: int,
    where: str,
    folded: _Folded | None = None,
    check: bool = True,
) -> PrepackedKernel:
    program = concrete.program if folded is None else folded.call.program
    nests = _core.apply_prepacked(program, chosen)
    prepack: _core.Kernel | None = None
    if nests is None:
        call = _core.compile_nest(_core.apply_schedule(program, chosen), cache_directory=where)
    else:
        prepack = _core.compile_nest(nests[0], cache_directory=where)
        call = _core.compile_nest(nests[1], cache_directory=where)
    about = ("prepacked", str(program.text()), str(chosen.text()), dtype)
    codes = [call] if prepack is None else [prepack, call]
    verdict = Verdict(Path(where) if where else None, about, codes)
    checked = verdict.read()
    if checked is None and not check:
        checked = Outcome(True, 0.0, 0.0, 0, "not compared")
    if checked is None:
        checked = Outcome.of(
            call.verify(program)
            if prepack is None
            else _core.verify_prepacked(prepack, call, program)
        )
        verdict.write(checked)
    if not checked.passed:
        verdict.discard()
        raise KernelError(
            f"[kernel] prepacked kernel {call.key[:12]} gave max_rel_err {checked.max_rel_err:.1e} "
            f"(limit {checked.limit:.0e}) against the reference; it was discarded. {checked.detail}"
        )
    verification = Verification(
        **vars(checked), operator=concrete if folded is None else folded.call, dtype=dtype
    )
    return PrepackedKernel(
        concrete, names, dtype, threads, chosen, prepack, call, verification, folded
    )


def parts_of_calls(
    operator: Operator, constants: tuple[str, ...], dtype: str
) -> tuple[Operator, tuple[str, ...]]:
    """What every call of `prepacked` computes, and which of its inputs stay the same over calls."""
    parts = _parts_of(operator, constants, dtype)
    if parts is None:
        return operator, constants
    once, call = parts
    return call, _left(once, call, constants)


def prepacked_seconds(
    operator: Operator,
    *,
    dtype: str,
    threads: int,
    constants: Sequence[str] | None = None,
    constants_from: int = 0,
    counted: bool = False,
) -> float:
    """What the machine model says of one call of `prepacked`.

    Args:
        operator: concrete.
        constants: default the operator's weights.
        constants_from: as for `prepacked`.
        counted: with a schedule by count alone, as `counted_seconds`: in milliseconds.
    """
    kept = tuple(operator.weights if constants is None else constants)
    operator, kept = parts_of_calls(operator, kept, dtype)
    program = operator._one_valuation("schedules").program
    of = counted_seconds if counted else predicted_seconds
    return of(program, dtype, threads, kept, constants_from)


def _aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory that begins at a cache line."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(count + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + count].view(dtype).reshape(shape)
