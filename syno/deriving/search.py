"""`syno.derive`: search, predict, measure, choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from syno import _core
from syno.deriving import einnet
from syno.deriving.apart import distinct, paths_together, sums_of
from syno.deriving.derivations import Derivations, Derived, Path_, fastest
from syno.deriving.einnet import Sought
from syno.deriving.judge import Judge
from syno.deriving.known import Question
from syno.deriving.replayed import depth_of, replayed
from syno.deriving.trial import HOPELESS, Trial
from syno.errors import ShapeError, SynoError, UnknownName, unknown_name
from syno.kernels.kernel import DTYPES
from syno.kernels.prepack import PrepackedKernel, prepacked_seconds
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.arguments import checked
from syno.support.machine import usable_cores
from syno.support.numbers import MOST_THREADS, whole
from syno.support.together import together

#: Of what a search found, schedules of so many programs are constructed; of all of them by count.
_CONSTRUCTED = 6
#: Of those, with as many multiply-adds that round alike: such programs differ by where things lie.
_CONSTRUCTED_ALIKE = 2
_KEPT = 24
_TURNS = 15
#: Accurate derived programs that are timed, and the growth of constants: what `derive` does by default.
_MEASURED = 3
_GROWTH = 4.0
#: Errors over roughness, in units of half the last place: measured 2.4 to 13 of F(2, 3) to F(4, 7) in one and two
#: dimensions, sums of 16 to 512 channels. Nothing rougher is looked at than what may be accurate by the least of them.
_LEAST_ERROR = 2.0
#: Errors in these units that originals have; twice as much is always allowed.
_ORIGINAL_ERROR = 32.0
_HALF_LAST_PLACE = {"float32": 2.0**-24, "float64": 2.0**-53}


def rules() -> list[tuple[str, str, bool]]:
    """(name, what it does, whether it is exact) of each rewrite that a search may use."""
    return [(str(name), str(text), bool(exact)) for name, text, exact, _ in _core.rewrite_rows()]


@checked(
    but=(
        "dtype",
        "threads",
        "depth",
        "converging",
        "states",
        "measure",
        "seconds",
        "growth",
        "max_rel_err",
    )
)
def derive(
    operator: Operator | _core.Program,
    /,
    *,
    seconds: float = 2.0,
    depth: int | None = None,
    states: int | None = None,
    rules: Sequence[str] | str | None = None,
    target: str | None = None,
    converging: int = einnet.CONVERGING,
    reassociate: bool = True,
    constants: Sequence[str] | None = None,
    dtype: str = "float32",
    threads: int = 1,
    measure: int = _MEASURED,
    growth: float = _GROWTH,
    max_rel_err: float = 1e-5,
    progress: Callable[[str], None] | None = None,
) -> Derivations:
    """Searches programs that compute what an operator computes, by rewriting it, and times the best.

    Where several sums do the work, half of the search looks at each alone, at equal ones once (they may differ by the names of
    their tensors), and what is found is put together; the other half looks at the whole program.

    The search is guided by a guess of each program's cost. What it found is predicted with schedules by count, the best
    six with constructed ones; the fastest of those are compiled, compared with the original in float64 on all elements of
    four kinds of data, and timed in turns with it; the fastest is compared with the interpreter, too. Ctrl-C ends it with
    what there is.

    Args:
        operator: at one valuation.
        seconds: of the search; 0: until nothing is left (or `states` are seen). What is found in the same time differs
            from run to run; with `states` and `seconds=0` it does not.
        depth: most rewrites one after the other; default any number, with `rules="einnet"` 7.
        states: most different programs; default any number.
        rules: names of rewrites, of `syno.deriving.rules()`; default all. "einnet": EINNET's rules in the paper's amounts,
            over the largest sum of products; every program up to the depth is looked at, fewest steps first.
        target: with `rules="einnet"`, which it implies: what operator of a library the sum of products shall be: "matmul",
            "bmm" (a batch of them), "conv", "g2bmm", "any", or with attributes "conv:kernel=3x3,stride=1",
            "g2bmm:dilation=1". Programs that are it are given back; `sought` of the result says how near it came.
        converging: with `rules="einnet"`, after `depth` rewrites of any kind those that each come nearer to the target are
            taken, where at most so many iterators keep a program from being it (EINNET section 5.2; 2 in its code). 0: none.
        reassociate: rewrites that are equal over the reals, up to rounding and for finite data (Winograd's), too.
        constants: inputs that stay the same over calls, whose transformation costs nothing; default the operator's
            weights. `()`: every call gives all inputs, as in training.
        dtype: "float32" or "float64".
        threads: of a call.
        measure: accurate derived programs that are compiled and timed, at most; inaccurate ones met on the way are
            timed, too. 0: none, and the original is the best.
        growth: constants may take so many times the memory after their transformation. Winograd's F(4x4, 3x3) needs 4.
        max_rel_err: largest difference from float64 as a part of the output's largest value; twice what the original
            itself has is always allowed.
        progress: called with a line now and then.
    Returns:
        The original and what was made of it; `best()` is the fastest.
    Raises:
        ShapeError: the operator is symbolic with several valuations, or a number is out of its range.
        UnknownName: no such rule, target, input or dtype.
        ScheduleError: `rules="einnet"`, and nothing in the operator is a sum of products of elements.
    """
    whole_operator = Operator(operator) if isinstance(operator, _core.Program) else operator
    concrete = whole_operator._one_valuation("derivations")
    if dtype not in ("float32", "float64"):
        if dtype in DTYPES:
            raise UnknownName(f"[derive] dtype {dtype!r}: derived are 'float32' and 'float64'")
        raise unknown_name("dtype", dtype, ("float32", "float64"))
    threads = whole("derive", "threads", threads, 1, MOST_THREADS)
    measure = whole("derive", "measure", measure, 0, 1000)
    depth_given = depth is not None
    depth = 0 if depth is None else whole("derive", "depth", depth, 0, 10_000)
    states = 0 if states is None else whole("derive", "states", states, 1, 10**12)
    seconds = _at_least("seconds", seconds, 0.0)
    growth = _at_least("growth", growth, 1.0)
    max_rel_err = _at_least("max_rel_err", max_rel_err, 0.0)
    named = tuple(concrete.weights if constants is None else constants)
    for name in named:
        if name not in concrete.inputs:
            raise unknown_name("input", name, concrete.inputs)
    converging = whole("derive", "converging", converging, 0, 64)
    if target is not None and not isinstance(target, str):
        raise ShapeError(f"[derive] target={target!r}: it is a text, as 'matmul'")
    if isinstance(rules, str) or target is not None:
        if rules is not None and rules != einnet.STEP:
            if isinstance(rules, str):
                raise unknown_name("preset of rules", rules, [einnet.STEP])
            raise ShapeError(
                f"[derive] target={target!r}: it is looked for with rules='einnet' alone"
            )
        return sought(
            concrete,
            target=target or "any",
            constants=named,
            dtype=dtype,
            threads=threads,
            max_rel_err=max_rel_err,
            seconds=seconds,
            depth=depth if depth_given else einnet.DEPTH,
            converging=converging,
            states=states,
            measure=measure,
            say=progress,
        )
    known = [name for name, *_ in _core.rewrite_rows()]
    for name in rules or ():
        if name not in known:
            raise unknown_name("rule", name, known)
    if depth == 0 and rules is not None and not rules:
        raise ShapeError(
            "[derive] rules=[]: there is nothing to rewrite with; leave it out for all rules"
        )
    return searched(
        concrete,
        constants=named,
        dtype=dtype,
        threads=threads,
        max_rel_err=max_rel_err,
        seconds=seconds,
        depth=depth,
        states=states,
        rules=list(rules or ()),
        reassociate=reassociate,
        growth=growth,
        measure=measure,
        say=progress,
        sums_apart=True,
    )


def searched(
    operator: Operator,
    *,
    constants: Sequence[str],
    dtype: str,
    threads: int,
    max_rel_err: float,
    seconds: float,
    depth: int = 0,
    states: int = 0,
    rules: Sequence[str] = (),
    reassociate: bool = True,
    growth: float = _GROWTH,
    measure: int = _MEASURED,
    say: Callable[[str], None] | None = None,
    hopeless: float = HOPELESS,
    check: bool = True,
    constants_from: int = 0,
    sums_apart: bool = False,
) -> Derivations:
    """What `derive` does with arguments that it has checked.

    Args:
        operator: a concrete one.
        constants, dtype, threads, max_rel_err, seconds, reassociate, growth, measure: as for `derive`; all constants by name.
        depth, states: 0 for any number.
        rules: none for all.
        say: called with a line now and then.
        hopeless: programs predicted to take longer than so many times the original's time are not measured.
        check: compare the best with the interpreter.
        constants_from: the level of the machine model that constants come from in use, as for `prepacked`.
        sums_apart: where several sums do the work, half of the time goes to each of them alone, equal ones once.
    """

    searches: list[_core.DerivationSearch] = []

    def search(
        of: Operator, constants: Sequence[str], seconds: float, states: int
    ) -> _core.DerivationSearch:
        made = _core.search_derivations(
            of.program,
            machine_model(measure=True),
            rules=list(rules),
            constants=list(constants),
            reassociating=reassociate,
            depth=depth,
            seconds=seconds,
            states=states,
            growth=growth,
            roughness=_most_rough(max_rel_err, dtype),
            keep=_KEPT,
            element_bytes=8 if dtype == "float64" else 4,
            workers=usable_cores(),
            watch=_watch(say) if say else None,
        )
        searches.append(made)
        return made

    about = constants, dtype, threads, constants_from
    parts = sums_of(operator, constants, dtype, threads) if sums_apart else []
    shares = 2 * len(distinct(parts))
    if 0 < states < shares:
        parts = []  # too few to be shared out

    def ranked(question: Question) -> list[Path_]:
        of = question.operator, question.constants
        made = search(*of, seconds / shares, states // shares)
        if made.ended == "interrupted":
            raise KeyboardInterrupt
        found = _all_derived(made.derivations, *of, dtype, threads, constants_from)[1:]
        together(partial(_predict, counted=True), found)
        return [one.path for one in _promising(found, len(found))]

    all_found = [Derived(operator, (), True, operator, tuple(constants), *about[1:])]
    ended = "interrupted"
    try:
        paths = paths_together(parts, ranked) if parts else []
        if depth:
            paths = [path for path in paths if depth_of(path) <= depth]
        whole_s = max(seconds / 2, seconds - sum(one.seconds for one in searches))
        made = search(operator, constants, whole_s, states and states - _states(searches))
        all_found = _all_derived(made.derivations, operator, *about)
        if made.ended != "interrupted":
            all_found += replayed(paths, operator, *about, seen=all_found)
            ended = str(made.ended)
    except KeyboardInterrupt:
        pass  # what there is comes back
    took = sum(one.seconds for one in searches)
    came = _Searched(_states(searches), took, ended)
    return _measured(all_found, came, measure, max_rel_err, say, hopeless, check)


@dataclass(frozen=True)
class _Searched:
    """What one or several searches took, and how the last one ended."""

    states: int
    seconds: float
    ended: str


def _states(searches: Sequence[_core.DerivationSearch]) -> int:
    return sum(one.states for one in searches)


def _most_rough(max_rel_err: float, dtype: str) -> float:
    """The roughness beyond which no program can be expected to be accurate enough."""
    unit = _HALF_LAST_PLACE[dtype]
    return max(max_rel_err / unit, 2 * _ORIGINAL_ERROR) / _LEAST_ERROR


def sought(
    operator: Operator,
    *,
    target: str,
    constants: Sequence[str],
    dtype: str,
    threads: int,
    max_rel_err: float,
    seconds: float,
    depth: int,
    converging: int = einnet.CONVERGING,
    states: int = 0,
    measure: int = _MEASURED,
    say: Callable[[str], None] | None = None,
) -> Derivations:
    """What `derive(rules="einnet")` does with arguments that it has checked.

    Args:
        operator: a concrete one.
        target, converging, constants, dtype, threads, max_rel_err, seconds, measure: as for `derive`; all constants by name.
        depth: most moves one after the other; 0 for any number.
        states: most different programs; 0 for any number.
        say: called with a line now and then.
    """
    found = _core.search_einnet(
        operator.program,
        machine_model(measure=True),
        target=target,
        constants=list(constants),
        depth=depth,
        converging=converging,
        seconds=seconds,
        states=states,
        keep=_KEPT,
        element_bytes=8 if dtype == "float64" else 4,
        watch=_watch(say) if say else None,
    )
    all_found = _all_derived(found.derivations, operator, constants, dtype, threads)
    for one, label in zip(all_found, found.labels, strict=True):
        one.label = label
    came_to = Sought(target, found.candidates, found.target_depth, found.nearest, found.missing)
    return _measured(all_found, found, measure, max_rel_err, say, HOPELESS, came_to=came_to)


def _all_derived(
    found: Sequence[_core.Derivation],
    operator: Operator,
    constants: Sequence[str],
    dtype: str,
    threads: int,
    constants_from: int = 0,
) -> list[Derived]:
    return [
        Derived(
            operator=Operator(each.program) if each.steps else operator,
            path=tuple((str(rule), site) for rule, site in each.steps),
            exact=each.exact,
            original=operator,
            constants=tuple(constants),
            dtype=dtype,
            threads=threads,
            constants_from=constants_from,
            roughness=each.roughness,
            guessed_us=each.guessed_s * 1e6,
        )
        for each in found
    ]


def _measured(
    all_found: list[Derived],
    found: _Searched | _core.EinnetSearch,
    measure: int,
    max_rel_err: float,
    say: Callable[[str], None] | None,
    hopeless: float,
    check: bool = True,
    came_to: Sought | None = None,
) -> Derivations:
    ended = found.ended
    if ended != "interrupted" and measure > 0 and len(all_found) > 1:
        try:
            _judged(all_found, measure, max_rel_err, say or (lambda line: None), hopeless, check)
        except KeyboardInterrupt:
            ended = "interrupted"
    ordered = [all_found[0], *sorted(all_found[1:], key=_rank)]
    return Derivations(
        ordered,
        states=found.states,
        seconds=found.seconds,
        ended=ended,
        max_rel_err=max_rel_err,
        sought=came_to,
    )


def tried(
    operator: Operator,
    paths: Sequence[Path_],
    *,
    constants: Sequence[str],
    dtype: str,
    threads: int,
    max_rel_err: float,
    constants_from: int = 0,
    hopeless: float = HOPELESS,
) -> Derivations:
    """What steps that served another program do for this one: `derive` without its search. Steps that do not apply are
    left out: those that concern scopes which this program has not.

    Args:
        operator: a concrete one.
        paths: steps of each program that is tried, (rule, site) from the original on, as `Derived.path`.
        constants, dtype, threads, max_rel_err: as for `derive`; all constants by name.
        constants_from: the level of the machine model that constants come from in use, as for `prepacked`.
        hopeless: programs predicted to take longer than so many times the original's time are not measured.
    """
    about = operator, tuple(constants), dtype, threads, constants_from
    found = [Derived(operator, (), True, *about)]
    found += replayed(paths, operator, constants, dtype, threads, constants_from, seen=found)
    if len(found) > 1:
        _judged(found, _MEASURED, max_rel_err, lambda line: None, hopeless)
    return Derivations(found, ended="states", max_rel_err=max_rel_err)


def _judged(
    found: list[Derived],
    measure: int,
    max_rel_err: float,
    say: Callable[[str], None],
    hopeless: float = HOPELESS,
    check: bool = True,
) -> None:
    """Predicts what was found, and compiles, compares and times what is predicted best."""
    original, *derived = found
    say(f"predicting {len(found)}")
    constructed = max(_CONSTRUCTED, measure)
    if len(derived) > constructed:
        together(partial(_predict, counted=True), derived)
        derived = _of_each_kind(derived)
    together(_predict, [original, *_promising(derived, constructed)])
    ranked = _of_each_kind(derived)
    if not ranked:
        return
    before = original.predicted_us or math.inf
    if (ranked[0].predicted_us or 0.0) > min(HOPELESS, hopeless) * before:
        return
    judge = Judge(original.original, original.dtype, original.threads)
    trial = Trial(judge, original, measure, max_rel_err, hopeless)
    kernels: list[tuple[Derived, PrepackedKernel]] = []
    waiting = [original, *ranked]
    while batch := trial.next(waiting):
        say(f"compiling {trial.tries + 1}, {trial.accurate} of {measure} accurate")
        for one, kernel in zip(batch, together(_kernel, batch), strict=True):
            if isinstance(kernel, SynoError):
                trial.failed(one, kernel)
            elif trial.compared(one, kernel):
                kernels.append((one, kernel))
    if len(kernels) < 2:
        return
    say("timing")
    timed = [kernel for _, kernel in kernels]
    hot, cold = judge.times(timed, _TURNS), judge.cold_times(timed, _TURNS)
    for number, (one, _) in enumerate(kernels):
        one.measured_us = hot[number]
        one.cold_us = cold[number] if cold else None
    while check and (best := fastest(original, derived)):
        # All were compared with the original, on all elements of four kinds of data; the best with the interpreter, too.
        try:
            best.prepack()
            break
        except SynoError as error:
            best.note = f"no kernel: {error}"


def _of_each_kind(found: Sequence[Derived]) -> list[Derived]:
    """Those that have a schedule, best first. Of programs whose calls are the same, as where weights alone lie in another
    order, it is the one of fewest steps."""
    least: dict[tuple[int, int, str], Derived] = {}
    for one in found:
        if one.predicted_us is None:
            continue
        kind = (one.multiply_adds, one.bytes, f"{one.predicted_us:.4g}")
        if kind not in least or len(one.path) < len(least[kind].path):
            least[kind] = one
    return sorted(least.values(), key=_rank)


def _promising(found: Sequence[Derived], count: int) -> list[Derived]:
    """The first so many by what is known of their time, few of them alike. Where weights or data are many, schedules by count
    take up to three times as long as constructed ones; that cannot be known before, but the search's guess is near then."""

    def time(one: Derived) -> float:
        return min(one.predicted_us or math.inf, one.guessed_us or math.inf)

    chosen: list[Derived] = []
    alike: dict[tuple[int, str], int] = {}
    for one in sorted(found, key=time):
        kind = (one.multiply_adds, f"{one.roughness:.3g}")
        alike[kind] = alike.get(kind, 0) + 1
        if alike[kind] <= _CONSTRUCTED_ALIKE:
            chosen.append(one)
        if len(chosen) == count:
            break
    return chosen


def _kernel(one: Derived) -> PrepackedKernel | SynoError:
    try:
        return one.prepack(check=False)
    except SynoError as error:
        return error


def _predict(one: Derived, counted: bool = False) -> None:
    try:
        one.predicted_us = 1e6 * prepacked_seconds(
            one.operator,
            dtype=one.dtype,
            threads=one.threads,
            constants=one.constants,
            constants_from=one.constants_from,
            counted=counted,
        )
    except SynoError as error:
        one.note = f"no schedule: {error}"


def _rank(one: Derived) -> tuple[float, float, float]:
    return (
        one.measured_us if one.measured_us is not None else math.inf,
        one.predicted_us if one.predicted_us is not None else math.inf,
        one.guessed_us,
    )


def _watch(say: Callable[[str], None]) -> Callable[[int, float, float], bool]:
    shown = [0.0]

    def watch(states: int, seconds: float, best: float) -> bool:
        if seconds - shown[0] >= 0.2:
            shown[0] = seconds
            say(f"{states:,} programs, best guess {best * 1e6:,.0f} us")
        return True

    return watch


def _at_least(name: str, value: float, least: float) -> float:
    number = (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else math.nan
    )
    if not math.isfinite(number) or number < least:
        raise ShapeError(f"[derive] {name}={value}: it is a number of at least {least:g}")
    return number
