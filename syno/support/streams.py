"""Random streams: what a training draws follows from its key, not from what ran before it in the process.

Models, loaders and transforms of users draw from the global generators of PyTorch, NumPy and Python, or from
generators that they keep. A :class:`Stream` lends all of these a state of its own for as long as it is entered
and gives them back as they were.

Candidates of one seed share their streams: the layers that none replaces begin with the same weights, and
batches come in the same order, so that operators are compared on equal terms.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Self

#: Containers with more items hold data, not generators; a search for generators looks at so many objects.
_MOST_ITEMS, _MOST_OBJECTS = 1_000, 20_000

# What their functions use is theirs to seed; the names of the standard library's modules come with Python.
_LIBRARIES = frozenset({"torch", "numpy", "syno", *sys.stdlib_module_names}) - {"__main__"}


def seed_of(*key: object) -> int:
    """63 bits that follow from ``key``: numbers and texts, or tuples of them; the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1


class Stream:
    """Random numbers of their own for the code inside its ``with`` block; entered again, it goes on.

    Args:
        key: what the numbers follow from, see :func:`seed_of`.
        of: objects whose own generators (see :func:`generators`) belong to the stream as the global ones do; loaders
            among them start their workers again, which otherwise draw on where the last stream left them.
        device: a torch device whose default generator does, too; the CPU's always does, once torch is loaded.
        inner: inside another stream, for blocks of microseconds: torch's default generators alone change hands,
            NumPy's and Python's go on being the outer stream's.
    """

    def __init__(
        self,
        *key: object,
        of: Iterable[object] = (),
        device: str = "cpu",
        inner: bool = False,
    ) -> None:
        self._key = key
        outer = [] if inner else [_NUMPY, _PYTHON]
        # Torch's last: a device that is used for the first time must not move the others' seeds.
        found = list(_reached(of))
        self._loaders = [one for one in found if _keeps_workers(one)]
        self._sources = [*outer, *map(_source, _generators_in(found)), *_of_torch(device)]
        self._own: list[Any] | None = None
        self._outer: list[Any] = []

    def __enter__(self) -> Self:
        self._outer = [source.get() for source in self._sources]
        if self._own is None:
            for loader in self._loaders:
                loader._iterator = None
            for number, source in enumerate(self._sources):
                source.seed(seed_of(*self._key, number))
        else:
            _restore(self._sources, self._own)
        return self

    @property
    def restorable(self) -> bool:
        """Whether its numbers follow from :meth:`states` alone: not from processes that loaders keep."""
        return not self._loaders

    def states(self, *, inside: bool) -> list[Any]:
        """Where its generators stand; ``inside`` its block they are in use, outside it they wait."""
        if inside or self._own is None:
            return [source.get() for source in self._sources]
        return list(self._own)

    def restore(self, states: list[Any], *, inside: bool) -> None:
        """Back to :meth:`states`. Raises ValueError where it had other generators."""
        if len(states) != len(self._sources):
            raise ValueError(f"{len(states)} generators, not {len(self._sources)}")
        if inside:
            _restore(self._sources, states)
        else:
            self._own = list(states)

    @property
    def entered(self) -> bool:
        """Whether its block was entered before."""
        return self._own is not None

    def __exit__(self, *exception: object) -> None:
        self._own = [source.get() for source in self._sources]
        _restore(self._sources, self._outer)


class _Source:
    """One generator: how its state is read, written, and made from a seed."""

    def __init__(
        self,
        get: Callable[[], Any],
        set: Callable[[Any], Any],
        seed: Callable[[int], Any],
    ) -> None:
        self.get, self.set, self.seed = get, set, seed


def _restore(sources: list[_Source], states: list[Any]) -> None:
    for source, state in zip(sources, states, strict=True):
        source.set(state)


_PYTHON = _Source(random.getstate, random.setstate, random.seed)
_NUMPY = _Source(
    lambda: np.random.get_state(legacy=False),
    np.random.set_state,
    lambda seed: np.random.seed([seed & 0xFFFFFFFF, seed >> 32]),
)


def _of_torch(device: str) -> list[_Source]:
    """The default generators of the CPU and of ``device``; none before torch is loaded."""
    torch = sys.modules.get("torch")
    # A module that is still being imported has no generator yet.
    if torch is None or not hasattr(torch, "default_generator"):
        return []
    found = [torch.default_generator]
    if str(device).startswith(("cuda", "auto")) and torch.cuda.is_available():
        torch.cuda.init()
    if torch.cuda.is_initialized():
        found += torch.cuda.default_generators
    return [_source(generator) for generator in found]


def _source(generator: Any) -> _Source:
    if isinstance(generator, random.Random):
        return _Source(generator.getstate, generator.setstate, generator.seed)
    if isinstance(generator, np.random.RandomState):
        return _of_random_state(generator)
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator

        def write(state: Any) -> None:
            bits.state = state

        return _Source(
            lambda: bits.state,
            write,
            lambda seed: write(type(bits)(seed).state),
        )
    return _Source(generator.get_state, generator.set_state, generator.manual_seed)


def _of_random_state(generator: np.random.RandomState) -> _Source:
    def seed(number: int) -> None:
        kind = type(generator._bit_generator)
        # All of the state: the second half of a pair of normal numbers is kept outside of the bits.
        generator.set_state(np.random.RandomState(kind(number)).get_state(legacy=False))

    return _Source(lambda: generator.get_state(legacy=False), generator.set_state, seed)


def reached(*roots: object) -> list[Any]:
    """Objects that ``roots`` keep or use, themselves included, in the order they are met."""
    return list(_reached(roots))


def generators(*roots: object) -> list[Any]:
    """The random generators of torch, NumPy and Python that ``roots`` keep or use, in the order they are met.

    Looks into attributes, small containers, closures, and the globals that functions and classes of
    users name. Data are not looked into.
    """
    return _generators_in(_reached(roots))


def _generators_in(objects: Iterable[Any]) -> list[Any]:
    kinds = _kinds()
    found = [one for one in objects if isinstance(one, kinds)]
    return [one for one in found if not _is_global(one) and _has_state(one)]


def _reached(roots: Iterable[object]) -> Iterator[Any]:
    """What ``roots`` keep or use, themselves included; each object once."""
    kinds = _kinds()
    seen: dict[int, Any] = {}  # keeps them alive, so that no two have the same id
    waiting = deque(roots)
    while waiting and len(seen) < _MOST_OBJECTS:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        yield one
        if not isinstance(one, kinds):
            waiting.extend(_inside(one))


def _keeps_workers(one: Any) -> bool:
    """Whether it is a loader of torch with processes that go on from one iteration to the next."""
    data: Any = sys.modules.get("torch.utils.data")
    return (
        data is not None
        and isinstance(one, data.DataLoader)
        and bool(one.persistent_workers)
        and hasattr(one, "_iterator")
    )


def _kinds() -> tuple[type, ...]:
    torch: Any = sys.modules.get("torch")
    more = (torch.Generator,) if hasattr(torch, "Generator") else ()
    return (random.Random, np.random.Generator, np.random.RandomState, *more)


def _has_state(generator: Any) -> bool:
    return not isinstance(generator, random.SystemRandom)


def _is_global(generator: Any) -> bool:
    """Whether every stream has it anyway."""
    torch = sys.modules.get("torch")
    return (
        generator is getattr(random, "_inst", None)
        or generator is getattr(np.random.mtrand, "_rand", None)
        or generator is getattr(torch, "default_generator", None)
    )


_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, bytearray, range, np.ndarray, np.generic,
    types.ModuleType, types.BuiltinFunctionType,
)  # fmt: skip


def _inside(one: object) -> Iterator[Any]:
    """What may hold a generator in ``one``."""
    if isinstance(one, _PLAIN):
        return
    if isinstance(one, dict):
        if len(one) <= _MOST_ITEMS:
            yield from one.values()
    elif isinstance(one, (list, tuple, set, frozenset, deque)):
        if len(one) <= _MOST_ITEMS:
            yield from one
    elif isinstance(one, functools.partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, types.MethodType):
        yield from (one.__self__, one.__func__)
    elif isinstance(one, types.FunctionType):
        yield from _inside_function(one)
    elif isinstance(one, type):
        yield from _inside_class(one)
    elif not _is_tensor(one):
        yield from list(getattr(one, "__dict__", {}).values())
        for base in type(one).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                yield getattr(one, name, None)
        yield type(one)


def _is_tensor(one: object) -> bool:
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "Tensor") and isinstance(one, torch.Tensor)


def _inside_function(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    if _of_library(function):
        return
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield function.__globals__[name]


def _inside_class(kind: type) -> Iterator[Any]:
    for base in kind.__mro__:
        if _of_library(base):
            continue
        for value in list(vars(base).values()):
            if isinstance(value, (staticmethod, classmethod)):
                yield value.__func__
            elif isinstance(value, property):
                yield value.fget
            else:
                yield value


def _of_library(one: Any) -> bool:
    return (getattr(one, "__module__", None) or "").partition(".")[0] in _LIBRARIES


__all__ = ["Stream", "generators", "reached", "seed_of"]
