"""Calls of a network on arrays of NumPy and tensors of PyTorch, where they lie. Imports neither before it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno import _core
from syno.errors import KernelError, ShapeError
from syno.support.numbers import MOST_THREADS, whole

if TYPE_CHECKING:
    from syno.graph.building import Array

#: (name, shape, element type) of an input or output.
Kind = tuple[str, tuple[int, ...], str]
#: Its shape, and its type as PyTorch's object.
_Tensor = tuple[tuple[int, ...], Any]


@dataclass(frozen=True)
class _OfTorch:
    """What a call with tensors asks PyTorch, looked up once: an import statement takes as long as a look at a tensor."""

    inputs: list[_Tensor]
    outputs: list[_Tensor]
    empty: Callable[..., Any]
    records: Callable[[], bool]
    """Whether gradients are recorded now."""


class NetworkCall:
    """What a compiled network and one read from a file have in common: its inputs, its outputs, and a call.

    Attributes:
        threads: of a call that does not say.
    """

    threads: int
    _inputs: list[Kind]
    _outputs: list[Kind]
    _executable: _core.Executable
    _of_torch: _OfTorch | None = None
    """Known from the first call with tensors on."""

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shapes and element types by name, in order."""
        return {name: (shape, dtype) for name, shape, dtype in self._inputs}

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shapes and element types by name, in order."""
        return {name: (shape, dtype) for name, shape, dtype in self._outputs}

    def example(self, seed: int = 0) -> list[Array]:
        """Random inputs: normal numbers; whole numbers of 0 and 1, which every table has rows for."""
        return random_arrays([(shape, dtype) for _, shape, dtype in self._inputs], seed)

    def taken(self, arrays: Sequence[Any]) -> list[Any]:
        """Inputs in order as the network reads them: where they lie, or row-major copies; errors as of `run`."""
        if len(arrays) != len(self._inputs):
            names = ", ".join(name for name, _, _ in self._inputs)
            raise ShapeError(
                f"[network] {len(arrays)} arrays for {len(self._inputs)} inputs: {names}"
            )
        return [_given(array, *wanted) for array, wanted in zip(arrays, self._inputs, strict=True)]

    def run(
        self, arrays: Sequence[Any], *, out: Any = None, num_threads: int | None = None
    ) -> list[Any]:
        """Computes the network's outputs, and no gradients.

        Args:
            arrays: its inputs in order: torch tensors, arrays, or what speaks DLPack, of the shapes and element types
                of `inputs`, with any strides (what is not row-major is copied).
            out: row-major arrays to write to, one for each output; default new ones.
            num_threads: default `threads`.
        Returns:
            The outputs in order; torch tensors when the first input is one, else NumPy arrays.
        Raises:
            ShapeError: an array is missing, or of another shape.
            KernelError: of another element type or device, or requires a gradient while torch records them.
        """
        threads = self.threads
        if num_threads is not None:
            threads = whole("network", "num_threads", num_threads, 1, MOST_THREADS)
        tensors = bool(arrays) and hasattr(arrays[0], "detach")
        if tensors and out is None and self._lie_as_read(arrays):  # nearly all calls
            return self._made_of(arrays, threads)
        held = self.taken(arrays)
        if out is None and tensors:
            made = self._fresh_tensors()
        elif out is None:
            made = [_fresh(shape, dtype) for _, shape, dtype in self._outputs]
        else:
            made = list(out) if isinstance(out, (tuple, list)) else [out]
            if len(made) != len(self._outputs):
                raise ShapeError(f"[network] {len(made)} arrays for {len(self._outputs)} outputs")
            for array, wanted in zip(made, self._outputs, strict=True):
                _given(array, *wanted)
                if not _is_row_major(array) or not _is_writable(array):
                    raise KernelError(
                        f"[network] out for {wanted[0]} is not row-major, or read-only"
                    )
            _check_apart(made, held)
        addresses = [_address(array) for array in (*held, *made)]
        self._executable.run(addresses, threads)
        return made

    def run_where_they_lie(self, tensors: Sequence[Any]) -> list[Any] | None:
        """As `run` of tensors that are known to be PyTorch's, on the CPU, of the inputs' shapes and element types: nobody
        looks at these again. None, and nothing is computed, where one has to be copied or requires a gradient."""
        records = (self._of_torch or self._asked_of_torch()).records()
        for tensor in tensors:
            if not tensor.is_contiguous() or tensor.is_neg() or (records and tensor.requires_grad):
                return None
        return self._made_of(tensors, self.threads)

    def _made_of(self, tensors: Sequence[Any], threads: int) -> list[Any]:
        made = self._fresh_tensors()
        self._executable.run([tensor.data_ptr() for tensor in (*tensors, *made)], threads)
        return made

    def _asked_of_torch(self) -> _OfTorch:
        if self._of_torch is None:
            import torch

            def kinds(of: Sequence[Kind]) -> list[_Tensor]:
                return [(shape, getattr(torch, dtype)) for _, shape, dtype in of]

            self._of_torch = _OfTorch(
                kinds(self._inputs), kinds(self._outputs), torch.empty, torch.is_grad_enabled
            )
        return self._of_torch

    def _lie_as_read(self, arrays: Sequence[Any]) -> bool:
        """Whether all are tensors of PyTorch that the network reads where they lie: what nearly all calls pass."""
        asked = self._of_torch or self._asked_of_torch()
        if len(arrays) != len(asked.inputs):
            return False
        records = asked.records()
        for array, (shape, dtype) in zip(arrays, asked.inputs, strict=True):
            if getattr(array, "dtype", None) is not dtype or array.shape != shape:
                return False
            if not array.is_cpu or not array.is_contiguous() or array.is_neg():
                return False
            if records and array.requires_grad:
                return False
        return True

    def _fresh_tensors(self) -> list[Any]:
        asked = self._of_torch or self._asked_of_torch()
        return [asked.empty(shape, dtype=dtype) for shape, dtype in asked.outputs]

    def timed(self, arrays: Sequence[Any], turns: int) -> tuple[list[float], float]:
        """Median seconds of each step on these inputs, and microseconds of a whole call."""
        from statistics import median
        from time import perf_counter

        turns = whole("profile", "turns", turns, 1, 10_000)
        held = self.taken(arrays)
        made = [_fresh(shape, dtype) for _, shape, dtype in self._outputs]
        addresses = [_address(array) for array in (*held, *made)]
        steps = list(self._executable.profile(addresses, self.threads, turns))
        whole_us = []
        for _ in range(turns):
            begin = perf_counter()
            self._executable.run(addresses, self.threads)
            whole_us.append((perf_counter() - begin) * 1e6)
        return steps, float(median(whole_us))


def _given(array: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """The array where it lies, or a row-major copy."""
    if hasattr(array, "detach"):
        if array.requires_grad and _records():
            raise KernelError(
                f"[network] {name} requires a gradient, and a compiled network computes none: call it under "
                "torch.no_grad(), or pass a detached tensor"
            )
        if array.device.type != "cpu":
            raise KernelError(f"[network] {name} is on the device {array.device}; pass .cpu()")
        kind = str(array.dtype).removeprefix("torch.")
        if tuple(array.shape) == shape and kind == dtype:
            array = array.detach()
            return (array.resolve_neg() if array.is_neg() else array).contiguous()
        found = tuple(array.shape)
    else:
        import numpy as np

        array = _in_memory(array, name)
        found, kind = array.shape, array.dtype.name
        if found == shape and kind == dtype:
            return np.ascontiguousarray(array).reshape(shape)
    if found != shape:
        raise ShapeError(
            f"[network] {name} has shape {list(found)}; the network was compiled for {list(shape)}: compile it again "
            "with an example of this shape"
        )
    raise KernelError(f"[network] {name} is {kind}; the network takes {dtype}")


def _in_memory(array: Any, name: str) -> Array:
    """NumPy's view of an array; of what speaks DLPack, such as JAX's, without a copy."""
    import numpy as np

    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        return np.asarray(array)
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise KernelError(
            f"[network] {name} cannot be read where it lies: {error}; pass a copy in the host's memory"
        ) from error


def _records() -> bool:
    import torch

    return torch.is_grad_enabled()


def _is_row_major(array: Any) -> bool:
    return bool(
        array.is_contiguous() if hasattr(array, "is_contiguous") else array.flags.c_contiguous
    )


def _is_writable(array: Any) -> bool:
    return not hasattr(array, "flags") or bool(array.flags.writeable)


def _check_apart(outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """ShapeError where an output shares memory with another argument: steps read inputs after they wrote outputs."""
    spans = [(_address(array), _address(array) + array.nbytes) for array in (*outputs, *inputs)]
    for number, (begin, end) in enumerate(spans[: len(outputs)]):
        for first, last in spans[number + 1 :]:
            if begin < last and first < end:
                raise ShapeError(
                    "[network] out overlaps another argument; pass arrays of their own"
                )


def _fresh(shape: tuple[int, ...], dtype: str) -> Array:
    import numpy as np

    from syno.graph.building import DTYPES

    return np.empty(shape, DTYPES[dtype])


def _address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)


def random_arrays(kinds: Sequence[tuple[tuple[int, ...], str]], seed: int = 0) -> list[Array]:
    """Normal numbers; whole numbers of 0 and 1."""
    import numpy as np

    from syno.graph.building import DTYPES

    rng = np.random.default_rng(seed)
    made: list[Array] = []
    for shape, dtype in kinds:
        kind = DTYPES[dtype]
        if np.issubdtype(kind, np.integer) or kind == np.bool_:
            made.append(rng.integers(0, 2, shape).astype(kind))
        else:
            made.append(rng.standard_normal(shape).astype(kind))
    return made
