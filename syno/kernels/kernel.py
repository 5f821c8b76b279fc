"""Native kernels: an operator compiled for this CPU, checked before its first use, called in place.

A kernel takes anything with `__dlpack__` or the buffer protocol and reads it where it lies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from syno import _core
from syno.errors import KernelError, ScheduleError, ShapeError, unknown_name
from syno.kernels.arrays import (
    layout_of,
    row_major,
    shows_twice,
    spreads_too_far,
    view_of,
    without_gradient,
)
from syno.kernels.cache import usable_cache
from syno.kernels.choosing import by_policy, made_with, schedule_of
from syno.kernels.construct import Chosen, Constructed, Policy, construct
from syno.kernels.machine_code import MachineCode
from syno.kernels.verdicts import Outcome, Verdict
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.arguments import checked
from syno.support.bounded import Bounded
from syno.support.notebook import Printed
from syno.support.numbers import MOST_SEED, MOST_THREADS, whole

if TYPE_CHECKING:
    from syno.timing.bench import Timing

#: Names of the element types of kernels. Those of bfloat16 compute in float32: it is what lies in memory, widened
#: where it is read and rounded to nearest, once, where a result is written.
DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}

#: By how much results of two correct kernels may differ, of the largest value: each adds in its own order; a sum
#: near the middle of two neighbours of bfloat16 may become either.
APART = {"float32": 1e-4, "float64": 1e-4, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Verification(Printed):
    """A kernel against the interpreter; true when it passed.

    `max_rel_err` is the largest |y - ref|, of the sum of an element's absolute terms where that is long;
    the limit is the most that rounding explains.
    """

    passed: bool
    max_rel_err: float
    limit: float
    points: int
    detail: str
    operator: Operator
    dtype: str

    def __bool__(self) -> bool:
        return self.passed

    @property
    def expr(self) -> str:
        return self.operator.expr

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self.operator.shapes

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in self.shapes.items())
        verdict = "verified" if self.passed else "WRONG"
        lines = [
            f"{verdict}: {self.expr}",
            f"  shapes: {shapes}; {self.dtype}",
            f"  {self.points} points, max_rel_err {self.max_rel_err:.2e} (limit {self.limit:.0e})",
        ]
        if self.detail and not self.passed:
            lines.append(f"  worst: {self.detail}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {**self._outcome(), "expr": self.expr, "shapes": self.shapes, "dtype": self.dtype}

    def _outcome(self) -> dict[str, Any]:
        """What a cache remembers beside the code."""
        return {name: getattr(self, name) for name in _OUTCOME}


_OUTCOME = ("passed", "max_rel_err", "limit", "points", "detail")

#: Other strides of arguments that a kernel keeps code for.
KEPT_LAYOUTS = 64


class Kernel(MachineCode):
    """A verified kernel of one concrete operator. Thread-safe. Made by `syno.compile` and `Operator.compile`."""

    def __init__(
        self,
        core: _core.Kernel,
        operator: Operator,
        dtype: str,
        threads: int,
        schedule: _core.Schedule,
        origin: str = "given",
    ) -> None:
        self._core = core
        self._dtype = DTYPES[dtype]
        self._threads = threads
        self._runs_on = gainful_threads(core.nest, threads)
        self._schedule = schedule
        self._origin = origin
        self._made: Constructed | None = None
        self._timing: Timing | None = None
        self._layouts: Bounded[Any, bool] = Bounded(16 * KEPT_LAYOUTS)
        self._strided: Bounded[Any, _core.Kernel] = Bounded(KEPT_LAYOUTS)
        self._cache = ""
        self.operator = operator
        self._shapes = operator.shapes
        self._inputs = tuple(operator.inputs)
        self._outputs = tuple(operator.outputs)
        self.verification: Verification | None = None
        """The check made before the first use; None only while it has not been made."""

    # Calling

    def __call__(self, *arrays: Any, out: Any = None, num_threads: int | None = None) -> Any:
        """Computes the operator, and no gradients: `operator.to_torch()` does.

        Args:
            arrays: inputs in the order of `operator.inputs`, of the kernel's dtype, with any strides;
                they are read where they lie.
            out: an array of any strides (or a sequence of them) to write to; default a new one.
            num_threads: of syno's own pool; default `runs_on`.
        Returns:
            The output, a torch tensor when the first input is one, else a NumPy array; a tuple when
            the operator has several outputs. NumPy's bfloat16 is that of `ml_dtypes`; where the first
            input is an array of its bits (uint16), so are the outputs.
        Raises:
            ShapeError: an array is missing or of another shape, or `out` overlaps another argument.
            KernelError: another dtype or device, memory that cannot be used in place, or the code made for
                other strides computes something else than the operator (it is checked on data of its own); a
                tensor requires a gradient while torch records them (outside `torch.no_grad()`).
        """
        threads = self._runs_on
        if num_threads is not None:
            threads = whole("kernel", "num_threads", num_threads, 1, MOST_THREADS)
        arrays = tuple(without_gradient(array) for array in arrays)
        outputs = out if isinstance(out, (tuple, list)) else (out,)
        for each in outputs:
            without_gradient(each)
        if any(hasattr(each, "is_neg") and each.is_neg() for each in outputs):
            raise KernelError("[kernel] out is a negated view; pass a tensor of its own memory")
        if all(map(row_major, arrays)) and (out is None or row_major(out)):
            return self._core(*arrays, out=out, num_threads=threads)
        if self._is_copied(arrays, [each for each in outputs if each is not None]):
            return self._call_on_copies(arrays, out, threads)
        return self._checked(arrays, out)(*arrays, out=out, num_threads=threads)

    def call_pointers(self, pointers: Sequence[int], threads: int) -> None:
        """One call on buffers by their addresses; nothing is checked.

        Args:
            pointers: inputs, then outputs, each row-major in the kernel's dtype.
            threads: that the call uses.
        """
        self._core.call_pointers(pointers, threads)

    @property
    def unchecked(self) -> Callable[[Sequence[int], int], None]:
        """`call_pointers` without a Python frame, for those who call it often."""
        return self._core.call_pointers

    def for_arrays(self, *arrays: Any, out: Any) -> Callable[[Sequence[int], int], None]:
        """`unchecked` for arrays with these strides; the code is made when first asked for.

        It is checked against the reference, on data of its own, before it is returned.

        Args:
            arrays: inputs in the order of `operator.inputs`, of the kernel's dtype; only how they lie in memory counts.
            out: the array to write to, or a sequence of them where the operator has several outputs.
        Returns:
            A function of addresses and threads, as `call_pointers`: for any buffers of these shapes and strides.
        Raises:
            ShapeError: as for a call.
            KernelError: as for a call, or the code for these strides computes something else.
        """
        arrays = tuple(without_gradient(array) for array in arrays)
        return self._checked(arrays, out).for_arrays(*arrays, out=out).call_pointers

    def _checked(self, arrays: Sequence[Any], out: Any) -> _core.Kernel:
        """Code for arrays that lie like these, compared with the interpreter before its first use: on
        generated data, never on the caller's, where a result may be anything."""
        code = self._code_for(arrays, out)
        layout = layout_of(arrays, out)
        if layout is None or self._layouts.get(layout) is not None:
            return code
        exact = code.for_arrays(*arrays, out=out)
        if exact is not self._core:
            result = exact.verify(self.operator.program, 0)
            if not result.passed:
                raise KernelError(
                    f"[kernel] the code for strides {layout} gave max_rel_err {result.max_rel_err:.1e} "
                    f"(limit {result.limit:.0e}) against the reference; pass row-major arrays. "
                    f"{result.detail}"
                )
        self._layouts.setdefault(layout, True)
        return code

    def _is_copied(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Whether no code is made for how the arguments lie, for no check could have such data of its own: an
        input's memory shows an element at several places, or one lies over more memory than a check may take."""
        try:
            views = [view_of(array) for array in (*inputs, *outputs)]
        except (TypeError, ValueError, RuntimeError, BufferError):
            return False  # a call says why
        if any(isinstance(view, np.ndarray) and shows_twice(view) for view in views[: len(inputs)]):
            return True
        return all(isinstance(view, np.ndarray) for view in views) and any(
            map(spreads_too_far, views)
        )

    def _call_on_copies(self, arrays: Sequence[Any], out: Any, threads: int) -> Any:
        """By the row-major code, which needs no check for such strides."""
        rows = [
            array.contiguous()
            if hasattr(array, "contiguous")
            else np.array(view_of(array), order="C")
            for array in arrays
        ]
        result = self._core(*rows, num_threads=threads)
        if out is None:
            return result
        outputs = out if isinstance(out, (tuple, list)) else (out,)
        results = result if isinstance(result, tuple) else (result,)
        if len(outputs) != len(results):
            raise ShapeError(f"[kernel] {len(outputs)} arrays for {len(results)} outputs")
        for place, made in zip(outputs, results, strict=True):
            to, by = np.asarray(view_of(place)), np.asarray(view_of(made)).view(self._dtype)
            if to.shape != by.shape or to.dtype.itemsize != by.dtype.itemsize:
                raise ShapeError(
                    f"[kernel] out is {to.dtype} {list(to.shape)}; the kernel writes "
                    f"{self._dtype.name} {list(by.shape)}"
                )
            np.copyto(to.view(self._dtype), by)
        return out if not isinstance(out, list) else tuple(out)

    def _code_for(self, arrays: Sequence[Any], out: Any) -> _core.Kernel:
        """Code for arrays that lie like these. Other strides want another schedule, made when they are first
        seen; one that was measured or given is kept."""
        strides = self._other_strides(arrays, out) if self._origin == "constructed" else {}
        if not strides:
            return self._core
        key = tuple((name, *numbers) for name, numbers in sorted(strides.items()))
        known = self._strided.get(key)
        if known is None:
            made = construct(
                self.operator,
                threads=self._threads,
                dtype=self.dtype,
                strides=strides,
                explain=False,
            )
            nest = _core.apply_schedule(self.operator.program, made.schedule)
            known = self._strided.setdefault(
                key, _core.compile_nest(nest, cache_directory=self._cache)
            )
        return known

    def _other_strides(self, arrays: Sequence[Any], out: Any) -> dict[str, list[int]]:
        """In elements, of those arguments that are not row-major; none where the arrays do not fit: a call
        says why."""
        outputs = out if isinstance(out, (tuple, list)) else (out,) * (out is not None)
        given = dict(zip(self._inputs, arrays, strict=False))
        given |= zip(self._outputs, outputs, strict=False)
        strides: dict[str, list[int]] = {}
        for name, array in given.items():
            try:
                view = view_of(array)
            except (TypeError, ValueError, RuntimeError, BufferError):
                return {}
            if not isinstance(view, np.ndarray) or view.dtype != self._dtype:
                return {}
            if view.shape != self._shapes[name] or any(s % view.itemsize for s in view.strides):
                return {}
            if not view.flags.c_contiguous:
                strides[name] = [s // view.itemsize for s in view.strides]
        return strides

    # Checking and timing

    def verify(self, seed: int = 0) -> Verification:
        """Compares with the interpreter: corners, borders, tails and at least 256 random points.

        What is allowed at a point is what running error analysis gives for the dtype, over- and underflow
        included. Inputs are between -1 and 1; where most results would be zero, infinite or no numbers for
        them, other inputs are tried as well. Where a point is a sum of hundreds of thousands of terms, fewer
        points are compared, down to 32; sums of millions are estimated from terms drawn at random: about a
        second's work for the interpreter.

        Args:
            seed: of the inputs and of the points compared; the same seed compares the same.
        Returns:
            What was found; true when the kernel passed.
        Raises:
            KernelError: `seed` is no whole number from 0 on.
        """
        seed = whole("verify", "seed", seed, 0, MOST_SEED)
        outcome = Outcome.of(self._core.verify(self.operator.program, seed))
        return Verification(**vars(outcome), operator=self.operator, dtype=self._dtype.name)

    @property
    def timing(self) -> Timing:
        """One call on random data in cache, on `runs_on` threads; measured when first asked."""
        if self._timing is None:
            self._timing = self.time()
        return self._timing

    def time(self, *, num_threads: int | None = None, turns: int = 15) -> Timing:
        """Measures now, on data of its own.

        Args:
            num_threads: that a call uses; default the kernel's.
            turns: samples, each of as many calls as a clock can tell.
        Returns:
            Median and interquartile range, microseconds a call.
        """
        from syno.timing.bench import measure

        rng = np.random.default_rng(0)
        threads = self._runs_on
        if num_threads is not None:
            threads = whole("time", "num_threads", num_threads, 1, MOST_THREADS)
        arrays = [
            rng.standard_normal(self._shapes[name]).astype(self._dtype) for name in self._inputs
        ]
        arrays += [np.empty(self._shapes[name], self._dtype) for name in self._outputs]
        pointers = [array.ctypes.data for array in arrays]
        call = self._core.call_pointers
        return measure({"kernel": lambda: call(pointers, threads)}, turns=turns, threads=threads)[0]

    # Looking inside

    @property
    def dtype(self) -> str:
        return str(self._dtype.name)

    @property
    def threads(self) -> int:
        """What it was compiled for."""
        return self._threads

    @property
    def runs_on(self) -> int:
        """Threads of a call that does not say: fewer than `threads` where it takes longer to start them
        than they save."""
        return self._runs_on

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict(self._shapes)

    @property
    def schedule(self) -> _core.Schedule:
        """The decisions that made the loop nest."""
        return self._schedule

    @property
    def origin(self) -> str:
        """Where the schedule comes from: "constructed", "recorded" (best one measured) or "given"."""
        return self._origin

    def predict(self) -> _core.Prediction:
        """What the machine model says of one call on `runs_on` threads, and what limits it."""
        return _core.predict_nest(self._core.nest, machine_model(), threads=self._runs_on)

    @checked()
    def explain(self, *, walk: bool = False) -> str:
        """Why the kernel is as it is: what limits it, what was near, and the steps of the construction that
        led to its schedule, with their benefits.

        Args:
            walk: every step, instead of the first, the last and the best.
        """
        limits = self.predict()
        head = f"schedule: {self._origin}; {limits!r}"
        if self._origin != "constructed":
            return head
        made = self._made or construct(self.operator, threads=self._threads, dtype=self.dtype)
        return f"{head}\n{made.text(walk=walk)}"

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n}: {list(s)}" for n, s in self._shapes.items())
        checked = self.verification
        state = f"max_rel_err {checked.max_rel_err:.1e}" if checked else "not verified"
        return f"Kernel({self.operator.expr}\n       {shapes}; {self.dtype}, {state})"

    def _repr_html_(self) -> str:
        import html

        def fold(title: str, text: str) -> str:
            return f"<details><summary>{title}</summary><pre>{html.escape(text)}</pre></details>"

        return (
            f"<div><pre>{html.escape(repr(self))}</pre>{fold('loop nest', self.loops())}"
            f"{fold('schedule', str(self._schedule.text()))}{fold('assembly', self.asm())}</div>"
        )


#: Kernels kept for those who ask for the same again; one takes some ten kilobytes to a megabyte. Older ones are
#: loaded from the cache directory when they are asked for, and live on where they are held.
KEPT_KERNELS = 1024

_kernels: Bounded[tuple[str, str, int, str, str, str], Kernel] = Bounded(KEPT_KERNELS)


@checked(but=("dtype", "threads"))
def compile(
    operator: Operator,
    *,
    dtype: str = "float32",
    threads: int = 1,
    schedule: _core.Schedule | None = None,
    policy: Policy | None = None,
    derive: bool = False,
    cache: bool = True,
) -> Kernel:
    """Compiles an operator for this CPU and checks the kernel before anyone can use it.

    Args:
        operator: at one valuation.
        dtype: "float32", "float64" or "bfloat16" (which computes in float32); all arrays of a call have it.
        threads: the constructed schedule spreads work over this many, where it gains by them; calls may ask
            for fewer or more.
        schedule: decisions to use instead of the constructed ones.
        policy: who constructs the schedule, whatever is on record: a name or a function, as for
            `syno.kernels.construct.construct`, or "search", which measures (`syno.tune` with its defaults).
            Default: the best one on record, else what is best by evidence, "graph".
        derive: of the fastest equivalent program that `syno.derive` finds in its default time; what was found
            is kept in the cache. Its `operator` is that program. All inputs may change from call to call.
        cache: read and write compiled objects under `syno.config.cache_directory()`.
    Raises:
        ShapeError: the operator is symbolic with several valuations.
        ScheduleError: `schedule` does not apply to this operator, or is given with `derive` or `policy`; a
            policy answered what cannot be built.
        KernelError: the kernel computes something else; it is discarded, not cached.
        UnknownName: no such dtype or policy.
    """
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    threads = whole("compile", "threads", threads, 1, MOST_THREADS)
    concrete = operator._one_valuation("kernels")
    directory = usable_cache() if cache else None
    if derive:
        if schedule is not None:
            raise ScheduleError(
                "[compile] a schedule is of one program: give derive=True or a schedule, not both"
            )
        from syno.deriving.known import fastest

        concrete = fastest(concrete, constants=(), dtype=dtype, threads=threads, cache=cache)
    if schedule is not None:
        if policy is not None:
            raise ScheduleError(
                "[compile] a policy makes a schedule: give one or the other, not both"
            )
        return _compiled(concrete, Chosen(schedule, "given"), dtype, threads, directory)
    if policy is not None:
        return _compiled(
            concrete, by_policy(concrete, policy, dtype, threads), dtype, threads, directory
        )
    codes: list[_core.Kernel] = []  # alive until the chosen one is linked again

    def choose(anew: bool) -> Chosen:
        codes.clear()
        return schedule_of(
            concrete, dtype=dtype, threads=threads, cache=cache, codes=codes, anew=anew
        )

    return made_with(choose, lambda choice: _compiled(concrete, choice, dtype, threads, directory))


def _compiled(
    concrete: Operator, choice: Chosen, dtype: str, threads: int, directory: Path | None
) -> Kernel:
    where = str(directory) if directory else ""
    program = concrete.program
    chosen = choice.schedule
    key = (
        str(program.text()),
        dtype,
        threads,
        str(chosen.text()),
        choice.origin,
        os.environ.get("SYNO_CPU", ""),
    )
    known = _kernels.get(key)
    if known is not None:
        return known
    nest = _core.apply_schedule(program, chosen)
    core = _core.compile_nest(nest, cache_directory=where)
    kernel = Kernel(core, concrete, dtype, threads, chosen, choice.origin)
    kernel._made = choice.made
    kernel._cache = where
    kernel.verification = _verified(kernel, directory)
    return _kernels.setdefault(key, kernel)


#: Twice the threads must save this part of the predicted time to be used.
_GAIN = 0.15


def gainful_threads(nest: _core.LoopNest, threads: int) -> int:
    """Threads that a call of a loop nest gains by, at most `threads`."""
    best, count = 1, 2
    if threads > 1:
        machine = machine_model()
        seconds = _core.predict_nest(nest, machine, threads=1).seconds
        while best < threads:
            count = min(count, threads)
            more = _core.predict_nest(nest, machine, threads=count).seconds
            if more > (1 - _GAIN) * seconds:
                break
            best, seconds, count = count, more, 2 * count
    return best


def _verified(kernel: Kernel, directory: Path | None) -> Verification:
    """The check of this very object against this very program: remembered in the cache, else made now."""
    about = (str(kernel.operator.program.text()), str(kernel.schedule.text()), kernel.dtype)
    verdict = Verdict(directory, about, [kernel._core])
    remembered = verdict.read()
    if remembered is not None:
        return Verification(**vars(remembered), operator=kernel.operator, dtype=kernel.dtype)
    result = kernel.verify()
    if not result.passed:
        verdict.discard()
        raise KernelError(
            f"[kernel] kernel {kernel.key[:12]} gave max_rel_err {result.max_rel_err:.1e} (limit "
            f"{result.limit:.0e}) against the reference; it was discarded, not cached. "
            f"{result.detail}"
        )
    verdict.write(Outcome(**result._outcome()))
    return result
