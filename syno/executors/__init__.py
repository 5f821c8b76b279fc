"""Who trains a search's candidates, by name: processes of this machine, or machines elsewhere.

``executor=`` of :func:`syno.search` and ``--executor`` of ``syno search`` take a name of :data:`NAMES`, an
address ``"ray://HOST:PORT"``, ``"package.module:make"`` (a function without arguments that returns a :class:`concurrent.futures.Executor`, or an
executor), or what the functions here return:

>>> syno.search(model, x, data="pkg.task:make", executor=syno.executors.ray(gpus=1))   # doctest: +SKIP

Who trains decides nothing: results are taken in the order of tickets, so that the candidates are those of one worker,
among machines of one numeric class (:func:`syno.session.nodes.numeric_class`), which each training records. What takes a
training's machine away repeats it; what the candidate did (a crash, its limits of time or memory) is its outcome.
"""

from __future__ import annotations

import concurrent.futures
import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syno.errors import ArgumentError, SessionError, TaskError, shown, unknown_name
from syno.session.elsewhere import RemoteExecutor
from syno.session.executors import Executor
from syno.session.futures import HAND_BACK_S, FuturesExecutor
from syno.session.memory import parse_bytes
from syno.session.targets import Lent, check_names, machine_text

#: Names that need no reference.
NAMES = ("local", "ray", "slurm")

#: Calls that anybody would have run at the same time.
_MOST_WIDTH = 1 << 16


def local(*, workers: int | None = None) -> int:
    """Processes of this machine, as without an executor.

    Args:
        workers: how many train at the same time; default one a usable core.
    """
    if workers is None:
        return 0
    _number("workers", workers, 1, _MOST_WIDTH, fix="give 1 worker or more", whole=True)
    return workers


def _number(
    name: str,
    value: object,
    least: int = 0,
    most: float = math.inf,
    *,
    fix: str,
    whole: bool = False,
) -> None:
    """Raises SessionError for an option that is no number of its range: on the command line it may be any text."""
    kind = numbers.Integral if whole else numbers.Real
    given = isinstance(value, kind) and not isinstance(value, bool)
    if given and math.isfinite(value) and least <= value <= most:  # type: ignore[arg-type, operator]
        return
    raise SessionError(f"{name}={shown(value)}", fix=fix, code="R018")


def futures(
    pool: concurrent.futures.Executor | Callable[[], concurrent.futures.Executor] | str,
    *,
    width: int | None = None,
    memory: str | int | None = None,
    hand_back_s: float = HAND_BACK_S,
) -> FuturesExecutor:
    """Any pool of :mod:`concurrent.futures`; each of its processes starts a worker process that can be killed.

    Args:
        pool: the pool; a function that makes one (then it is made again when it breaks), or the function's
            ``"package.module:name"``.
        width: calls that run at the same time; default what the pool says of itself.
        memory: of a training, ``"8GiB"``; one that holds more is ended, which is its outcome.
        hand_back_s: seconds after which a long training that was written down comes back and goes on in whichever process is
            free, so that no more than that is lost with a process; 0: never.
    Raises:
        TaskError: the reference cannot be imported.
        SessionError: no pool came, or an option is no amount.
    """
    made = _imported(pool) if isinstance(pool, str) else pool
    if not isinstance(made, concurrent.futures.Executor) and not callable(made):
        raise SessionError(
            f"{shown(pool)} is no pool",
            fix="give a concurrent.futures.Executor, or a function without arguments that returns one",
            code="R018",
        )
    _number("hand_back_s", hand_back_s, fix="give 0 seconds (never) or more")
    if width is not None:
        _number("width", width, 1, _MOST_WIDTH, fix="give 1 call or more", whole=True)
    return FuturesExecutor(
        made, width=width, memory_bytes=_bytes(memory), hand_back_s=float(hand_back_s)
    )


def ray(
    address: str = "",
    *,
    gpus: float = 0,
    memory: str | int | None = None,
    ship: str | Sequence[str] = (),
    trust_network: bool = False,
    wait_s: float = 600.0,
) -> Executor:
    """The nodes of a Ray cluster. Each training is a task that takes the session's threads as CPUs, and starts a worker
    process that can be killed; Ray repeats nothing by itself (``max_retries=0``).

    Latencies are measured by the nodes with the label ``syno-target=true``, which train nothing then, or by this machine where
    there is none.

    Args:
        address: ``"ray://HOST:PORT"`` of another machine; empty: the cluster that this machine is part of, as in a job that
            ``ray job submit`` started, or ``RAY_ADDRESS``.
        gpus: of each training.
        memory: of each training, ``"8GiB"``: asked for, and kept to: one that holds more is ended, which is its outcome.
        ship: files and folders below the working directory that nodes need, such as data and the file of the task: put
            into Ray's object store once, unpacked once on each node, found there under the same names. Several
            in a text are separated by commas.
        trust_network: connects to an address in no private network without TLS.
        wait_s: how long to wait for a node where there is none left, before the run ends, resumable.
    Raises:
        SessionError: the address is wrong, not to be trusted, or nobody answers; something cannot be shipped; there is no Ray.
    """
    from syno.executors.ray_cluster import RayExecutor

    _number("gpus", gpus, fix="give 0 GPUs or more, also 0.5 of one")
    _number("wait_s", wait_s, fix="give 0 seconds or more")
    return RayExecutor(
        address,
        gpus=gpus,
        memory_bytes=_bytes(memory),
        ship=[part for part in ship.split(",") if part] if isinstance(ship, str) else ship,
        trust_network=trust_network,
        wait_s=wait_s,
    )


def slurm(
    *,
    partition: str = "",
    gpus: int = 0,
    memory: str | int | None = None,
    width: int = 16,
    target: str = "",
    folder: str | None = None,
    cluster: str = "slurm",
) -> Executor:
    """Slurm, through submitit: a job a training, with the session's threads as CPUs, run where ``sbatch`` is.

    Jobs find what they need by the paths it has here, on the file system that they share.

    Args:
        partition: where jobs go.
        gpus, memory: of each training; one that holds more memory is ended, which is its outcome.
        width: jobs that are handed over at the same time.
        target: the constraint (feature) of the machines that latencies are measured on, alone on each; empty: this machine.
        folder: where jobs' files lie; default the session's ``slurm``.
        cluster: ``"local"``: processes of this machine in place of jobs, to try it out.
    Raises:
        SessionError: an option is wrong, there is no submitit.
    """
    from syno.executors.slurm_jobs import SlurmExecutor

    if cluster not in ("slurm", "local"):
        raise unknown_name("cluster", cluster, ("slurm", "local"))
    _number("width", width, 1, _MOST_WIDTH, fix="give 1 job or more", whole=True)
    _number("gpus", gpus, fix="give 0 GPUs or more", whole=True)
    return SlurmExecutor(
        partition=partition,
        gpus=gpus,
        memory_bytes=_bytes(memory),
        width=width,
        target=target,
        folder=folder,
        cluster=cluster,
    )


def targets(given: Mapping[str, Any] | Sequence[str] | None, **more: Any) -> dict[str, Lent]:
    """Who lends which further machine, by its name, as ``targets=`` of :func:`syno.search` and ``--target`` name them.

    Args:
        given: ``{"pi": executor}`` (a name, a pool, what a function here makes, or a :class:`syno.session.targets.Lent` with
            a machine file), or texts, ``"pi=ray,machine=pi.json"``: the executor, its options, and the machine file;
            ``"pi=ray,send=bundle,cpu=x86-64-v3"`` for a machine without torch, which times networks that are exported here.
        more: options of every executor that takes them.
    Raises:
        ArgumentError, UnknownName, TaskError: a text is none of these, or names no executor.
        FormatError: there is no such machine file.
        SessionError: an executor cannot be made, is no one's who lends machines, or a name is none.
    """
    rows = given if isinstance(given, Mapping) else dict(_parted(given or []))
    check_names(rows)
    found: dict[str, Lent] = {}
    for name, value in rows.items():
        options: dict[str, Any] = {}
        own: dict[str, Any] = {}
        if isinstance(value, Lent):
            own = {"machine": value.machine, "send": value.send, "cpu": value.cpu}
            value = value.executor
        elif isinstance(value, _Named):
            options, value = dict(value.options), value.executor
            own = {n: str(options.pop(n)) for n in ("machine", "send", "cpu") if n in options}
            own["machine"] = machine_text(own.get("machine"))
            options |= {n: v for n, v in more.items() if value == "ray" or "ray://" in value}
        made = resolve(value, options)
        if not isinstance(made, RemoteExecutor):
            raise SessionError(
                f"{shown(value)} lends no machine as the target {name}",
                fix="give ray, ray://HOST:PORT, slurm, or package.module:make of a concurrent.futures.Executor",
                code="R018",
            )
        found[name] = Lent(made, **own)
    return found


def check_targets(texts: Sequence[str]) -> None:
    """Looks at what ``--target`` was given, before work starts; nobody is asked.

    Args:
        texts: ``"pi=ray,machine=pi.json"`` and the like, see :func:`targets`.
    Raises:
        ArgumentError: a text names no target and who lends it, or a target for the second time.
        UnknownName: no such executor.
        SessionError: a target's name is none.
    """
    for _ in _parted(texts):
        pass


@dataclass(frozen=True)
class _Named:
    """An executor as a text names it."""

    executor: str
    options: dict[str, Any]


def _parted(texts: Sequence[str]) -> Iterator[tuple[str, _Named]]:
    seen = set()
    for text in texts:
        name, _, rest = text.partition("=")
        executor, *parts = rest.split(",")
        pairs = [part.partition("=") for part in parts]
        if not executor or any(not key or not equals for key, equals, _ in pairs):
            raise ArgumentError(
                f"{shown(text)} names no target and who lends it",
                fix="write NAME=EXECUTOR,OPTION=VALUE: 'pi=ray,machine=pi.json', 'desk=slurm,target=zen4'",
            )
        if name in seen:
            raise ArgumentError(f"the target {shown(name)} is given twice", fix="give it once")
        seen.add(name)
        check_names({name: executor})
        check_name(executor)
        plain = {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
        yield name, _Named(executor, plain)


def _imported(reference: str) -> Any:
    from syno.training.tasks import resolve

    return resolve(reference)


def _bytes(memory: str | int | None) -> int | None:
    return None if memory is None else parse_bytes(memory)


#: Options of :func:`futures`; others of a reference are its function's.
_OF_POOLS = ("width", "memory", "hand_back_s")


def _reference(name: str, options: Mapping[str, Any]) -> Executor:
    """What a function by reference makes: a pool, or an executor itself."""
    maker = _imported(name)
    if not callable(maker):
        raise TaskError(
            f"{name!r} is no function",
            fix="give a function that returns a concurrent.futures.Executor",
            code="T006",
        )
    own = {n: v for n, v in options.items() if n not in _OF_POOLS}
    fitting(name, maker, own)
    made = maker(**own)
    if isinstance(made, concurrent.futures.Executor):
        rest = {n: v for n, v in options.items() if n in _OF_POOLS}
        return futures(_Again(made, lambda: maker(**own)), **rest)
    if hasattr(made, "run") and hasattr(made, "close"):
        found: Executor = made
        return found
    raise SessionError(
        f"{name!r} returned a {type(made).__name__}",
        fix="return a concurrent.futures.Executor",
        code="R018",
    )


class _Again:
    """The pool that is there, then new ones."""

    def __init__(self, first: concurrent.futures.Executor, make: Callable[[], Any]) -> None:
        self._first: concurrent.futures.Executor | None = first
        self._make = make

    def __call__(self) -> Any:
        first, self._first = self._first, None
        return self._make() if first is None else first


def fitting(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Looks whether a function takes the options that a caller gave for it.

    Args:
        name: of the executor, for the message.
        function: what will be called with them; one that takes any (``**options``) passes.
        options: by name.
    Raises:
        ArgumentError: it does not take one of them; the message lists those it takes.
    """
    taken = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values()):
        return
    for option in options:
        if option not in taken:
            raise ArgumentError(
                f"the executor {name!r} has no option {option!r}",
                fix=f"it has {', '.join(taken) or 'none'}",
            )


def check_name(text: str) -> None:
    """Looks whether a text may name an executor; nothing is imported and nobody asked.

    Args:
        text: a name of :data:`NAMES`, ``"ray://HOST:PORT"`` or ``"package.module:make"``.
    Raises:
        UnknownName: it is none of these.
    """
    if text not in NAMES and ":" not in text:
        raise unknown_name("executor", text, [*NAMES, "ray://HOST:PORT", "package.module:make"])


def resolve(given: Any, options: Mapping[str, Any] | None = None) -> Executor | int | None:
    """The executor that a caller named; ``None`` or a number of processes where that is this machine.

    Args:
        given: a name of :data:`NAMES`, ``"ray://HOST:PORT"``, ``"package.module:make"``, a pool, or an executor.
        options: of the function of that name.
    Raises:
        UnknownName: no such executor.
        ArgumentError: an option that it does not have.
        TaskError: a reference cannot be imported.
        SessionError: it cannot be made, reached, or trusted.
    """
    own = dict(options or {})
    if given is None:
        if own:
            raise ArgumentError(
                f"the option {next(iter(own))!r} is of an executor, and none is named",
                fix=f"name one of {', '.join(NAMES)}, or package.module:make",
            )
        return None
    if isinstance(given, concurrent.futures.Executor):
        return futures(given, **own)
    if isinstance(given, int) and not isinstance(given, bool):  # what local() returns
        return given
    if not isinstance(given, str):
        if hasattr(given, "run") and hasattr(given, "close"):
            executor: Executor = given
            return executor
        raise SessionError(
            f"{shown(given)} is no executor",
            fix=f"name one of {', '.join(NAMES)}, or package.module:make",
            code="R018",
        )
    if given.startswith("ray://"):
        own = {"address": given, **own}
        given = "ray"
    makers: dict[str, Callable[..., Any]] = {"local": local, "ray": ray, "slurm": slurm}
    if given in makers:
        fitting(given, makers[given], own)
        return makers[given](**own)  # type: ignore[no-any-return]
    if ":" in given:
        return _reference(given, own)
    raise unknown_name("executor", given, [*makers, "package.module:make"])


__all__ = [
    "NAMES",
    "check_name",
    "check_targets",
    "fitting",
    "futures",
    "local",
    "ray",
    "resolve",
    "slurm",
    "targets",
]
