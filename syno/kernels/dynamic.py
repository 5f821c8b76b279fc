"""Kernels for sizes that calls bring along: one machine code for a range of them, made for its largest.

An operator at several sizes is one program whose extents follow the sizes (`_core.with_live_ends`); a schedule made
for the largest size becomes a loop nest whose loops end where a call says. A range is cut into buckets where the code
made for its upper end is predicted to lose too much at its lower end. Where more than extents follows a size (an index
that holds it), kernels are made for each size on its own. Sizes of dimensions that
are neighbours everywhere, such as height and width of a 1x1 convolution, are one to the code: their product.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from syno import _core
from syno.errors import KernelError, ScheduleError, ShapeError, unknown_name
from syno.kernels.arrays import row_major, view_of, without_gradient
from syno.kernels.buckets import Bucket, Plans
from syno.kernels.cache import usable_cache
from syno.kernels.choosing import made_with, schedule_of
from syno.kernels.construct import Chosen
from syno.kernels.families import Family, Merged, Sizes, merged
from syno.kernels.kernel import DTYPES, Kernel, gainful_threads
from syno.kernels.ranged import NotTheSame, checked_at
from syno.operators.operator import Operator
from syno.operators.other_sizes import beside
from syno.support.arguments import checked
from syno.support.bounded import Bounded
from syno.support.notebook import Printed
from syno.support.numbers import MOST_THREADS, whole

_log = logging.getLogger("syno.kernels.dynamic")

#: Sizes of which the kernels at hand are kept; a kernel of a bucket at one size is some ten kilobytes.
KEPT_SIZES = 4096

#: The largest size that can be named.
MOST_SIZE = 2**20


class DynamicKernel(Printed):
    """Kernels of one operator for all sizes in a range. Thread-safe; `compile(dynamic=...)` makes it.

    Attributes:
        buckets: ranges of sizes with machine code of their own, made when they are first needed; of sizes that are one to
            the code, of their product, behind the others.
        by_size: why code is made for each size alone; empty where buckets have theirs.
    """

    def __init__(
        self,
        family: Family,
        *,
        dtype: str,
        threads: int,
        cache: bool,
        background: bool,
    ) -> None:
        self._of_calls = family
        self._merged: tuple[Merged, ...] = merged(family)
        self._family = self._merged[-1].family if self._merged else family
        self._dtype, self._threads = dtype, threads
        self._cache, self._background = cache, background
        self._lock = threading.Lock()
        self._making: dict[Bucket, threading.Lock] = {}
        self._made: dict[Bucket, tuple[_core.Kernel, int]] = {}
        self._busy: set[Bucket] = set()
        self._at: Bounded[Sizes, Callable[..., Any]] = Bounded(KEPT_SIZES)
        # The same by the shapes of arrays: one look for each call. What is forgotten is looked for anew.
        self._of_shapes: dict[tuple[tuple[int, ...], ...], Callable[..., Any]] = {}
        self._workers: list[threading.Thread] = []
        self._plans = Plans(self._family, dtype=dtype, threads=threads)
        self.by_size = ""
        whole_range = Bucket(self._family.least, self._family.greatest, 0.0)
        try:
            self._made_of(whole_range)
            self.buckets = tuple(self._plans.cut(whole_range))
        except (ShapeError, ScheduleError, KernelError) as error:
            if isinstance(error, KernelError) and not isinstance(error, NotTheSame):
                raise
            self.by_size = str(error)
            self.buckets = (whole_range,)
            self._at.setdefault(family.greatest, self._for_size(family.greatest))
        self._whole = whole_range

    # Calling

    def __call__(self, *arrays: Any, out: Any = None, num_threads: int | None = None) -> Any:
        """Computes the operator, and no gradients.

        Args:
            arrays: inputs in the order of `inputs`, of the kernel's dtype; their shapes say which sizes they have.
            out: an array (or a sequence of them) to write to; default a new one.
            num_threads: of syno's own pool; default as many as the call gains by.
        Returns:
            As `Kernel.__call__`.
        Raises:
            ShapeError: a size is outside of its range, an array is missing or of another shape.
            KernelError: another dtype or device.
        """
        try:
            shapes = tuple([array.shape for array in arrays])
            call = self._of_shapes.get(shapes)
        except (AttributeError, TypeError):  # lists, say
            shapes = tuple([np.shape(view_of(array)) for array in arrays])
            call = self._of_shapes.get(shapes)
        if call is None:
            sizes = self._of_calls.sizes_of(shapes)
            call = self._at.get(sizes)
            if call is None:
                call = self._prepared(sizes)
            if self._at.get(sizes) is call:  # else there will be better code
                if len(self._of_shapes) >= KEPT_SIZES:
                    self._of_shapes = {}
                self._of_shapes[shapes] = call
        return call(arrays, out, num_threads)

    def at(self, **sizes: int) -> Callable[..., Any]:
        """What a call with arrays of these sizes runs, ready: `f(*arrays, out=None, num_threads=None)`.

        Raises:
            ShapeError: a size is missing, unknown or outside of its range.
        """
        values = self._values(sizes)
        call = self._at.get(values) or self._prepared(values)
        return lambda *arrays, out=None, num_threads=None: call(arrays, out, num_threads)

    def wait(self) -> None:
        """Until no better code is being made in the background."""
        while self._workers:
            self._workers.pop().join()

    # Looking at it

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._of_calls.largest.inputs)

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Least and greatest value, by name."""
        family = self._of_calls
        return dict(zip(family.names, zip(family.least, family.greatest, strict=True), strict=True))

    @property
    def ready(self) -> tuple[Bucket, ...]:
        """Those of which the machine code is there."""
        with self._lock:
            return tuple(bucket for bucket in self.buckets if bucket in self._made)

    def loops(self, **sizes: int) -> str:
        """The loop nest that computes these sizes, with their ranges as its parameters."""
        values = self._values(sizes)
        if self.by_size:
            return self._static(values).loops()
        core, _ = self._made_of(self._bucket(self._within(values)))
        return str(core.nest.text())

    def __repr__(self) -> str:
        ranges = ", ".join(f"{name} {low} to {high}" for name, (low, high) in self.sizes.items())
        how = f"each size alone: {self.by_size}" if self.by_size else f"{len(self.buckets)} buckets"
        return (
            f"DynamicKernel({self._of_calls.largest.expr}\n       {ranges}; {self._dtype}, {how})"
        )

    def __str__(self) -> str:
        lines = [repr(self), *(f"  {bucket}" for bucket in self.buckets if not self.by_size)]
        return "\n".join(lines)

    # Making

    def _values(self, sizes: Mapping[str, int]) -> Sizes:
        tied = self._of_calls.tied
        for name, value in sizes.items():
            if name not in self._of_calls.names and name not in tied:
                raise unknown_name("size", name, (*self._of_calls.names, *tied))
            by = tied.get(name, name)
            if sizes.get(by, value) != value:
                raise ShapeError(
                    f"[dynamic] {name}={value} and {by}={sizes[by]} walk the same dimension of an input, which has one extent"
                )
        sizes = {tied.get(name, name): value for name, value in sizes.items()}
        for name, (low, high) in self.sizes.items():
            if name not in sizes:
                raise ShapeError(
                    f"[dynamic] the size {name} is missing; it is from {low} to {high}"
                )
            whole("dynamic", name, sizes[name], low, high, ShapeError)
        return tuple(sizes[name] for name in self._of_calls.names)

    def _bucket(self, sizes: Sizes) -> Bucket:
        return next(bucket for bucket in self.buckets if bucket.holds(sizes))

    def _prepared(self, sizes: Sizes) -> Callable[..., Any]:
        if self.by_size:
            return self._at.setdefault(sizes, self._for_size(sizes))
        bucket = self._bucket(self._within(sizes))
        if self._background and bucket not in self._made:
            self._make_beside(bucket)
            return self._caller(
                self._whole, sizes
            )  # not kept: the next call may have the better one
        return self._at.setdefault(sizes, self._caller(bucket, sizes))

    def _caller(self, bucket: Bucket, sizes: Sizes) -> Callable[..., Any]:
        general, threads = self._made_of(bucket)
        core = general.at(list(self._within(sizes)))
        if self._merged:
            core = core.viewed(
                [self._shape(name, shape, sizes) for name, _, shape in core.arguments]
            )
        return _call_of(core, threads)

    def _within(self, sizes: Sizes) -> Sizes:
        """As the code has them: products of those whose dimensions are one there."""
        for step in self._merged:
            sizes = step.within(sizes)
        return sizes

    def _shape(self, name: str, shape: Sequence[int], sizes: Sizes) -> list[int]:
        """Of an array in a call, from what it is in the code."""
        each = [sizes]
        for step in self._merged:
            each.append(step.within(each[-1]))
        found = list(shape)
        for step, before in zip(reversed(self._merged), reversed(each[:-1]), strict=True):
            found = step.apart(name, found, before)
        return found

    def _make_beside(self, bucket: Bucket) -> None:
        with self._lock:
            if bucket in self._busy:
                return
            self._busy.add(bucket)
        worker = threading.Thread(target=self._make_quietly, args=(bucket,), daemon=True)
        self._workers = [*(each for each in self._workers if each.is_alive()), worker]
        worker.start()

    def _make_quietly(self, bucket: Bucket) -> None:
        try:
            self._made_of(bucket)
        except Exception as error:  # whoever calls goes on with what there is
            _log.warning("no better code for the sizes %s: %s", bucket, error)

    def _made_of(self, bucket: Bucket) -> tuple[_core.Kernel, int]:
        with self._lock:
            found = self._made.get(bucket)
            making = self._making.setdefault(bucket, threading.Lock())
        if found is not None:
            return found
        with making:
            if bucket not in self._made:
                made = self._make(bucket)
                with self._lock:
                    self._made[bucket] = made
        return self._made[bucket]

    def _make(self, bucket: Bucket) -> tuple[_core.Kernel, int]:
        plan = self._plans.of(bucket)
        directory = usable_cache() if self._cache else None
        codes: list[_core.Kernel] = []  # of which `make` finds the one it compiles
        nest_of = self._plans.nest_of(plan, bucket)

        def choose(anew: bool) -> Chosen:
            return schedule_of(
                self._plans.scheduled(plan, bucket),
                dtype=self._dtype,
                threads=self._threads,
                cache=self._cache,
                codes=codes,
                anew=anew,
                nest_of=nest_of,
                nest_key=repr((plan.extents, bucket.least, bucket.greatest)),
            )

        def make(choice: Chosen) -> tuple[_core.Kernel, int]:
            nest = nest_of(choice.schedule)
            core = _core.compile_nest(nest, cache_directory=str(directory) if directory else "")
            self._verify(core, bucket)
            return core, gainful_threads(nest.specialised(list(bucket.greatest)), self._threads)

        return made_with(choose, make)

    def _verify(self, core: _core.Kernel, bucket: Bucket) -> None:
        """At the ends and at random sizes, against the interpreter of each size's own program."""
        draw = random.Random(repr((bucket.least, bucket.greatest)))
        between = [
            tuple(draw.randint(*ends) for ends in zip(bucket.least, bucket.greatest, strict=True))
            for _ in range(2)
        ]
        tried = dict.fromkeys([bucket.least, bucket.greatest, *between])
        checked_at(
            [core],
            {sizes: self._family.at(sizes).program for sizes in tried},
            directory=usable_cache() if self._cache else None,
        )

    def _static(self, sizes: Sizes) -> Kernel:
        return self._of_calls.at(sizes).compile(
            self._dtype, threads=self._threads, cache=self._cache
        )

    def _for_size(self, sizes: Sizes) -> Callable[..., Any]:
        kernel = self._static(sizes)
        return lambda arrays, out, threads: kernel(*arrays, out=out, num_threads=threads)


def _call_of(core: _core.Kernel, default: int) -> Callable[..., Any]:
    """A call on arrays of any strides: what is not row-major is copied."""

    def call(arrays: Sequence[Any], out: Any, threads: int | None) -> Any:
        count = default
        if threads is not None:
            count = whole("kernel", "num_threads", threads, 1, MOST_THREADS)
        rows = []
        for array in arrays:
            array = without_gradient(array)
            if not row_major(array):
                array = (
                    array.contiguous()
                    if hasattr(array, "contiguous")
                    else np.array(view_of(array), order="C")
                )
            rows.append(array)
        if out is None:
            return core(*rows, num_threads=count)
        outputs = out if isinstance(out, (tuple, list)) else (out,)
        for each in outputs:
            without_gradient(each)
        if any(hasattr(each, "is_neg") and each.is_neg() for each in outputs):
            raise KernelError("[kernel] out is a negated view; pass a tensor of its own memory")
        if all(map(row_major, outputs)):
            return core(*rows, out=out, num_threads=count)
        raise KernelError(
            "[dynamic] out is not row-major; kernels for a range of sizes write row-major arrays: pass one"
        )

    return call


def dynamic_sizes(dynamic: Any, known: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The ranges that a caller gave: {"n": (1, 512)}.

    Raises:
        ShapeError: none, or one that is no pair of whole numbers with 1 <= least <= greatest.
        UnknownName: of a size that there is not.
    """
    if not isinstance(dynamic, Mapping) or not dynamic:
        raise ShapeError(
            f"[dynamic] dynamic={dynamic!r}: give the range of each size by its name, such as {{'n': (1, 512)}}"
        )
    ranges: dict[str, tuple[int, int]] = {}
    for name, ends in dynamic.items():
        if name not in known:
            raise unknown_name("size", name, sorted(known))
        if not isinstance(ends, (tuple, list)) or len(ends) != 2:
            raise ShapeError(
                f"[dynamic] {name}={ends!r}: give the least and the greatest value, such as (1, 512)"
            )
        low = whole("dynamic", f"the least {name}", ends[0], 1, MOST_SIZE, ShapeError)
        high = whole("dynamic", f"the greatest {name}", ends[1], 1, MOST_SIZE, ShapeError)
        if high < low:
            raise ShapeError(
                f"[dynamic] {name}=({low}, {high}): its least value is above its greatest"
            )
        ranges[str(name)] = (low, high)
    return ranges


def _tied(operator: Operator, ranges: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Sizes that change with one that a call brings along: a dimension that several iterators walk has one extent, and shows none
    of them where the others stay.

    Raises:
        ShapeError: two of them were given, with different ranges.
    """
    tied: dict[str, str] = {}
    for name, ends in ranges.items():
        others = [n for n in beside(operator, name) if n not in tied]

        def shown(along: Sequence[str], by: str = name, ends: tuple[int, int] = ends) -> bool:
            small, large = (operator.with_sizes(**dict.fromkeys([by, *along], n)) for n in ends)
            return any(small.shapes[n] != large.shapes[n] for n in operator.inputs)

        if name in tied or ends[0] == ends[1] or not others or shown([]) or not shown(others):
            continue
        for other in others:
            if ranges.get(other, ends) != ends:
                raise ShapeError(
                    f"[dynamic] {name}={ends} and {other}={ranges[other]} walk the same dimension of an input, which has one "
                    f"extent; give one of them, or the same range"
                )
        tied |= dict.fromkeys(others, name)
    return tied


@checked(but=("dynamic", "dtype", "threads"))
def compile_dynamic(
    operator: Operator,
    dynamic: Any,
    *,
    dtype: str = "float32",
    threads: int = 1,
    cache: bool = True,
    background: bool = False,
) -> DynamicKernel:
    """Kernels of an operator for ranges of its sizes; `syno.compile(operator, dynamic=...)` calls it."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    threads = whole("compile", "threads", threads, 1, MOST_THREADS)
    ranges = dynamic_sizes(dynamic, operator.size_names)
    tied = _tied(operator, ranges)
    family = Family(
        lambda sizes: operator.with_sizes(**sizes, **{n: sizes[by] for n, by in tied.items()}),
        {name: ends for name, ends in ranges.items() if name not in tied},
        tied,
    )
    return DynamicKernel(
        family, dtype=dtype, threads=threads, cache=bool(cache), background=bool(background)
    )


__all__ = ["Bucket", "DynamicKernel", "compile_dynamic"]
