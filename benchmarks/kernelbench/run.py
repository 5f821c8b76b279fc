"""One case measured: the kernel and its peers in turns, results checked, beside what the machine allows."""

from __future__ import annotations

import logging
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelbench.cases import Case
from kernelbench.instructions import MOST, sampled
from kernelbench.limit import OutOfTime, time_limit
from kernelbench.native import native_forms
from kernelbench.peers import (
    PEERS,
    WHOLE,
    Form,
    Peer,
    Unavailable,
    compiled_calls_only,
    first_line,
    graph_of,
    result_array,
)
from kernelbench.written import written_module
from syno import _core
from syno.errors import KernelError
from syno.kernels.construct import construct
from syno.kernels.kernel import DTYPES, Kernel
from syno.kernels.prepack import prepacked
from syno.machines.model import MachineModel, machine_model
from syno.operators.operator import Operator
from syno.support.numbers import significant
from syno.timing.bench import Timing, measure
from syno.torch.native import TORCH
from syno.tuning.cost_model import rank_correlation

_log = logging.getLogger("kernels")
#: Largest difference of a peer's result from the kernel's, over the largest result. In bfloat16 peers round after
#: every stage.
TOLERANCE = {"float32": 1e-3, "float64": 1e-10, "bfloat16": 3e-2}

#: Calls of a contestant that seems too slow, before it is left out.
_TRIES = 5


@dataclass
class Result:
    """A row of the report; times in microseconds. `ratio...` above 1: the kernel is faster."""

    name: str
    klass: str
    us: float
    spread: float
    gflops: float
    fraction_of_peak: float
    roof_us: float
    read_roof_us: float  # as if all bytes were read
    bound: str
    fraction_of_roof: float
    fraction_of_read_roof: float
    peers_us: dict[str, float]
    forms_us: dict[str, float]
    best_peer: str | None
    best_form: str | None
    ratio_to_best_peer: float | None
    peers_asked: int
    """How many peers the run was to compare with; `peers_us` has those that ran."""
    ratios: dict[str, float]
    max_rel_err: float
    construct_ms: float | None
    compile_ms: float | None
    cached_ms: float | None
    """From the loop nest to code that can be called, the object on disk."""
    spills: int | None
    predicted_us: float | None
    absent: dict[str, str] = field(default_factory=dict)
    avx512: dict[str, float] = field(default_factory=dict)
    """The share of instructions in AVX-512's encoding that each contestant of a run that is held to less was found at."""
    intensity: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        entry = {("class" if k == "klass" else k): v for k, v in self.__dict__.items()}
        del entry["intensity"]
        return entry


@dataclass(frozen=True)
class Settings:
    """What a run is asked for."""

    peers: Sequence[str]
    threads: int
    turns: int
    machine_file: str
    """The machine model as text, which travels to the process that measures."""
    limit_s: float = 2.0
    """Measuring of one case ends after this, at least three turns made."""
    prepare_s: float = 120.0
    """A form that a peer needs longer to make ready is left out."""
    held: str = ""
    """A CPU of `kernelbench.instructions.HELD`, whose instructions nobody exceeds; "": this one."""

    @cached_property
    def machine(self) -> MachineModel:
        return MachineModel.from_json(self.machine_file)


def inputs_of(case: Case, seed: int = 0) -> list[Tensor]:
    """Random inputs in order, strided as the case says."""
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for name in case.operator.inputs:
        shape = case.operator.shapes[name]
        strides = case.strides.get(name)
        dtype = TORCH[case.dtype]
        if strides is None:
            tensors.append(torch.randn(shape, generator=generator, dtype=dtype))
        else:
            span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            bigger = torch.randn(span, generator=generator, dtype=dtype)
            tensors.append(bigger.as_strided(shape, strides))
    return tensors


def forms_of(case: Case) -> dict[str, Callable[..., Tensor]]:
    """The operator in PyTorch, by name: recognised native calls first, the emitted form where needed."""
    operator = case.operator
    native = native_forms(operator.program)
    forms: dict[str, Callable[..., Tensor]] = {}
    for name, form in native.items():
        if case.synthesised or name != "stages":
            forms[f"{name} {form.name}" if name != "stages" else "stages"] = form.function
    if case.synthesised or not forms:
        forms["emitted"] = _emitted(operator)
        whole = operator.one_scope
        if case.synthesised and whole is not None and whole.text() != operator.program.text():
            forms["einsum"] = _emitted(Operator.from_program(whole))
    return forms


def _emitted(operator: Operator) -> Callable[..., Tensor]:
    module = written_module(operator)
    names = [name for name, _ in module.named_parameters()]
    weights, data, inputs = operator.weights, operator.data, operator.inputs

    def run(*tensors: Tensor) -> Tensor:
        given = dict(zip(inputs, tensors, strict=True))
        parameters = dict(zip(names, (given[name] for name in weights), strict=True))
        result = torch.func.functional_call(module, parameters, tuple(given[name] for name in data))
        assert isinstance(result, Tensor)
        return result

    return run


@dataclass(frozen=True)
class Cold:
    """What a kernel costs that nobody has made before, milliseconds."""

    construct_ms: float
    compile_ms: float
    cached_ms: float
    spills: int


def cold(operator: Operator, dtype: str, threads: int) -> Cold:
    """Times the construction of a schedule and its loop nest, the code, and the same code from disk."""
    start = time.perf_counter()
    schedule = construct(operator, dtype=dtype, threads=threads).schedule
    nest = _core.apply_schedule(operator.program, schedule)
    constructed = time.perf_counter()
    spills = int(_core.compile_nest(nest, fresh=True).report.spills)
    done = time.perf_counter()
    cached = []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(4):  # the first one writes; each is dropped before the next
            start_cached = time.perf_counter()
            _core.compile_nest(nest, cache_directory=directory)
            cached.append(time.perf_counter() - start_cached)
    return Cold(
        1e3 * (constructed - start),
        1e3 * (done - constructed),
        1e3 * statistics.median(cached[1:]),
        spills,
    )


def run_case(
    case: Case,
    settings: Settings,
    left_out: Mapping[str, str],
    at_work: Callable[[int], None],
) -> Result:
    """Verifies and times a case.

    Args:
        left_out: peers that are not to run, and why.
        at_work: told the number of the peer, in `settings.peers`, that is about to run, and -1 after it.

    Raises:
        SynoError: there is no kernel of it.
    """
    operator = case.operator
    tensors = inputs_of(case)
    absent: dict[str, str] = dict(left_out)
    made: Cold | None = None
    predicted = None
    if case.training:
        contestants, error = _training_contestants(case, tensors, settings, absent, at_work)
    else:
        made = cold(operator, case.dtype, settings.threads)
        kernel = operator.compile(dtype=case.dtype, threads=settings.threads)
        ours = _bound(kernel, case, tensors, settings.threads)
        contestants = {"syno": ours}
        predicted = ours.predicted_us
        error = kernel.verify(seed=1).max_rel_err
        expected = result_array(ours.result())
        contestants |= _peers(case, tensors, expected, settings, absent, at_work)
    shares: dict[str, float] = {}
    with torch.inference_mode(not case.training), compiled_calls_only():
        contestants = _worth_turns(contestants, settings, absent)
        if settings.held:
            contestants = _held(contestants, settings.held, absent, shares)
        timings = measure(
            contestants,
            turns=settings.turns,
            min_sample_s=1e-3,
            timeout_s=settings.limit_s,
            threads=settings.threads,
        )
    return _result(case, timings, settings, absent, error, made, predicted, shares)


def _bound(kernel: Kernel, case: Case, tensors: Sequence[Tensor], threads: int) -> _Call:
    """A call on these tensors where they lie, without anything but the call; the faster of the whole
    kernel and the one whose constants were packed before."""
    out = torch.empty(kernel.shapes[kernel.operator.outputs[0]], dtype=tensors[0].dtype)
    kernel(*tensors, out=out)  # checks the code for these strides once
    code = kernel.for_arrays(*tensors, out=out)
    pointers = [t.data_ptr() for t in (*tensors, out)]
    best = _Call(code, pointers, threads, out, [], 1e6 * kernel.predict().seconds)
    packed = _prepacked(case, tensors, out, threads)
    if packed is not None:
        times = {t.name: t for t in measure({"whole": best, "packed": packed}, turns=15)}
        if times["packed"].median_us < times["whole"].median_us:
            best = packed
    return best


@dataclass(frozen=True)
class _Call:
    """A kernel on addresses; `held` keeps what they point to."""

    code: Callable[[Sequence[int], int], None]
    pointers: Sequence[int]
    threads: int
    out: Tensor
    held: Sequence[Any]
    predicted_us: float

    def __call__(self) -> None:
        self.code(self.pointers, self.threads)

    def result(self) -> Tensor:
        self()
        return self.out


def _prepacked(case: Case, tensors: Sequence[Tensor], out: Tensor, threads: int) -> _Call | None:
    """The call that is left when copies of the constant inputs were made before; None without any."""
    if not case.constant or case.strides:
        return None
    kernel = prepacked(case.operator, case.constant, dtype=case.dtype, threads=threads)
    if not kernel.packs:
        return None
    values = dict(zip(case.operator.inputs, tensors, strict=True))
    packed = kernel.pack(**{name: values[name] for name in kernel.constants})
    addresses = {name: values[name].data_ptr() for name in kernel.data}
    addresses[case.operator.outputs[0]] = out.data_ptr()
    pointers = [addresses[name] if at is None else at for name, at in packed.arguments()]
    predicted = _core.predict_nest(kernel.call.nest, machine_model(), threads=threads)
    held = [packed, *tensors]
    return _Call(packed.unchecked, pointers, threads, out, held, 1e6 * predicted.seconds)


def _peers(
    case: Case,
    tensors: Sequence[Tensor],
    expected: Any,
    settings: Settings,
    absent: dict[str, str],
    at_work: Callable[[int], None],
) -> dict[str, Callable[[], Any]]:
    inputs = case.operator.inputs
    given = dict(zip(inputs, tensors, strict=True))
    constants = {name: given[name] for name in case.constant}
    data = [given[name] for name in inputs if name not in constants]
    found: dict[str, Callable[[], Any]] = {}
    forms = forms_of(case) if settings.peers else {}
    # Before all peers, not between them: a compiled form that is forgotten is compiled again when it is
    # called, then without freezing.
    torch._dynamo.reset()
    for number, name in enumerate(settings.peers):
        peer = PEERS[name]
        if name in absent:
            continue
        if peer.absent:
            absent[name] = peer.absent
            continue
        at_work(number)
        for label, call in _of_peer(peer, forms, inputs, constants, data, settings, absent).items():
            try:
                with torch.inference_mode():
                    got = result_array(call.result() if hasattr(call, "result") else call())
            except Exception as error:  # whatever a peer throws is the reason
                absent[label] = first_line(error)
                _log.warning("%s: %s is left out: %s", case.name, label, absent[label])
                continue
            worst = _difference(got, expected)
            if worst > TOLERANCE[case.dtype]:
                absent[label] = f"its result differs from the kernel's by {worst:.1e}"
                _log.warning("%s: %s is left out: %s", case.name, label, absent[label])
            else:
                found[label] = call
        at_work(-1)
    return found


def _worth_turns(
    contestants: dict[str, Callable[[], Any]], settings: Settings, absent: dict[str, str]
) -> dict[str, Callable[[], Any]]:
    """Without those so slow that they would take the turns of all others; they say how slow."""
    seconds: dict[str, float] = {}
    for name, call in contestants.items():
        call()
        seconds[name] = math.inf
        for _ in range(_TRIES):  # a call that was interrupted is not slow
            start = time.perf_counter()
            call()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
            if seconds[name] <= settings.limit_s / 40:
                break
    best = min(seconds.values())
    kept = {}
    for name, call in contestants.items():
        slow = seconds[name] > 10 * best and seconds[name] > settings.limit_s / 40
        if slow and name != "syno":
            absent[name] = f"{significant(1e6 * seconds[name])} us once: too slow to take turns"
        else:
            kept[name] = call
    return kept


def _held(
    contestants: dict[str, Callable[[], Any]],
    cpu: str,
    absent: dict[str, str],
    shares: dict[str, float],
) -> dict[str, Callable[[], Any]]:
    """Without those that run AVX-512 in spite of being held to `cpu`; every one's share of it goes into `shares`."""
    kept = {}
    for name, call in contestants.items():
        try:
            shares[name] = sampled(call).share
        except OSError as error:
            raise KernelError(f"[kernels] {error}") from error
        if shares[name] <= MOST:
            kept[name] = call
        elif name == "syno":
            raise KernelError(
                f"[kernels] a kernel for {cpu} runs AVX-512: {shares[name]:.0%} of its instructions"
            )
        else:
            absent[name] = (
                f"cannot be held to {cpu}: {shares[name]:.0%} of its instructions are AVX-512's"
            )
    return kept


def _of_peer(
    peer: Peer,
    forms: Mapping[str, Callable[..., Tensor]],
    inputs: Sequence[str],
    constants: Mapping[str, Tensor],
    data: Sequence[Tensor],
    settings: Settings,
    absent: dict[str, str],
) -> dict[str, Callable[[], Any]]:
    calls: dict[str, Callable[[], Any]] = {}
    # The systems that have a graph optimiser of their own get the nearest native calls that they can
    # read; the emitted form where there are none.
    only_first = peer.name in ("onnxruntime", "openvino", "xla")
    for form in forms:
        if only_first and calls:
            break
        try:
            with time_limit(settings.prepare_s):
                with torch.no_grad():
                    module = graph_of(Form(forms[form], inputs, dict(constants)), data)
                with torch.inference_mode():
                    made = peer.prepare(module, data, settings.threads)
        except (Unavailable, OutOfTime) as error:
            absent[f"{peer.name} {form}"] = str(error)
            continue
        except Exception as error:  # such as a package that is there and cannot be imported
            absent[f"{peer.name} {form}"] = f"{type(error).__name__}: {first_line(error)}"
            continue
        for variant, call in made.items():
            calls[", ".join(filter(None, (f"{peer.name} {form}", variant)))] = call
    return calls


def _difference(got: Any, expected: Any) -> float:
    if got.shape != expected.shape:
        return math.inf
    scale = float(np.abs(expected).max(initial=0.0))
    worst = float(np.abs(got - expected).max(initial=0.0))
    return worst / max(scale, 1e-30) if math.isfinite(worst) else math.inf


# Training


def _training_contestants(
    case: Case,
    tensors: Sequence[Tensor],
    settings: Settings,
    absent: dict[str, str],
    at_work: Callable[[int], None],
) -> tuple[dict[str, Callable[[], Any]], float]:
    """Steps of forward and backward: gradients of data and weights, every weight changing."""
    from syno.torch.ops import as_function

    operator = case.operator
    leaves = [t.clone().requires_grad_() for t in tensors]
    function = as_function(operator)
    cotangent = torch.randn(operator.shapes[operator.outputs[0]], dtype=tensors[0].dtype)

    def step(forward: Callable[..., Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(forward(*leaves), leaves, cotangent)

    torch._dynamo.reset()
    contestants = {"syno": step(function)}
    expected = [result_array(g) for g in contestants["syno"]()]
    error = 0.0
    for number, name in enumerate(settings.peers):
        if name in absent:
            continue
        if name not in ("eager", "compile"):
            absent[name] = "trains nothing"
            continue
        at_work(number)
        for label, form in forms_of(case).items():
            try:
                with time_limit(settings.prepare_s):
                    forward = graph_of(Form(form, operator.inputs, {}), leaves).forward
                    if name == "compile":
                        forward = torch.compile(forward, **WHOLE)
                    call = step(forward)
                    got = [result_array(g) for g in call()]
            except Exception as problem:  # whatever inductor throws is the reason
                absent[f"{name} {label}"] = first_line(problem)
                continue
            worst = max(_difference(g, e) for g, e in zip(got, expected, strict=True))
            if worst > TOLERANCE[case.dtype]:
                absent[f"{name} {label}"] = f"its gradients differ by {worst:.1e}"
            else:
                error = max(error, worst)
                contestants[f"{name} {label}"] = call
        at_work(-1)
    return contestants, error


# What the numbers mean


@dataclass(frozen=True)
class Roof:
    us: float
    read_us: float  # as if all bytes were read
    bound: str  # "compute", or the memory level that holds all bytes
    flops: float  # 2 a multiply-add
    bytes: float


def roof(case: Case, settings: Settings) -> Roof:
    """What the machine needs at least: its multiply-adds, or its bytes from the level that holds them all.

    A store reads its line before it writes it, so bytes that are written are counted by what writing and copying
    were measured to take, not by what reading takes.
    """
    operator, machine = case.operator, settings.machine
    element = DTYPES[case.dtype].itemsize
    flops = 2.0 * operator.flops
    sizes = {n: math.prod(shape) for n, shape in operator.shapes.items()}
    written = float(element * sum(sizes[name] for name in operator.outputs))
    read = float(element * sum(sizes.values())) - written
    if case.training:
        gradients = _derivative_flops(operator)
        flops += 2.0 * gradients
        read, written = read + written, read + written  # what was written is read by the gradients
    moved = read + written
    compute = flops / _peak_gflops(case, settings) * 1e-3
    level = next((lv for lv in machine.levels if lv.bytes >= moved), machine.levels[-1])
    sharing = 1 if level.shared_by > 1 or level is machine.levels[-1] else settings.threads
    memory = level.seconds(read, written) / sharing * 1e6
    all_read = moved / (level.read_gbs * sharing) * 1e-3
    bound = "compute" if compute >= memory else str(level.name)
    return Roof(max(compute, memory), max(compute, all_read), bound, flops, moved)


def _peak_gflops(case: Case, settings: Settings) -> float:
    """Of the multiply-adds that kernels use: bfloat16 is computed with in float32."""
    computed = max(4, DTYPES[case.dtype].itemsize)
    return float(settings.machine.peak_gflops(computed)) * settings.threads


def _derivative_flops(operator: Operator) -> int:
    return sum(
        Operator.from_program(operator.program.derivative(name)).flops for name in operator.inputs
    )


def _result(
    case: Case,
    timings: Sequence[Timing],
    settings: Settings,
    absent: dict[str, str],
    error: float,
    made: Cold | None,
    predicted: float | None,
    shares: dict[str, float],
) -> Result:
    ours, others = timings[0], timings[1:]
    least = roof(case, settings)
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for timing in others:
        # Speed-ups refer to the kernel, so this is (form / kernel) turn by turn.
        peer, _, form = timing.name.partition(" ")
        ratio = 1 / timing.speed_up
        if peer not in peers or timing.median_us < peers[peer]:
            peers[peer] = timing.median_us
            ratios[peer] = ratio
        if form in ("emitted", "stages", "einsum"):
            ratios[timing.name] = ratio
    best = min(others, key=lambda t: t.median_us, default=None)
    gflops = least.flops / ours.median_us * 1e-3
    return Result(
        name=case.name,
        klass=case.klass,
        us=ours.median_us,
        spread=ours.iqr_us,
        gflops=gflops,
        fraction_of_peak=gflops / _peak_gflops(case, settings),
        roof_us=least.us,
        read_roof_us=least.read_us,
        bound=least.bound,
        fraction_of_roof=least.us / ours.median_us,
        fraction_of_read_roof=least.read_us / ours.median_us,
        peers_us=peers,
        forms_us={t.name: t.median_us for t in others},
        best_peer=best.name.partition(" ")[0] if best else None,
        best_form=best.name.partition(" ")[2] if best else None,
        ratio_to_best_peer=1 / best.speed_up if best else None,
        peers_asked=len(settings.peers),
        ratios=ratios,
        max_rel_err=error,
        construct_ms=made and made.construct_ms,
        compile_ms=made and made.compile_ms,
        cached_ms=made and made.cached_ms,
        spills=made and made.spills,
        predicted_us=predicted,
        absent=absent,
        avx512=shares,
        intensity=least.flops / least.bytes,
    )


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


@dataclass(frozen=True)
class Presence:
    """In how many of the cases a peer ran; `why` is the reason most often given where it did not."""

    ran: int
    cases: int
    why: str | None

    def __str__(self) -> str:
        if self.why is None:
            return f"ran in all {self.cases} cases"
        if self.ran == 0:
            return f"is absent: {self.why}"
        return f"ran in {self.ran} of {self.cases} cases: {self.why}"


def presence(peers: Sequence[str], results: Sequence[Result]) -> dict[str, Presence]:
    """What became of each peer that was asked for: there is no peer that neither ran nor has a reason."""
    found = {}
    for peer in peers:
        without = [r for r in results if peer not in r.peers_us]
        reasons = [
            reason
            for r in without
            for name, reason in r.absent.items()
            if name.partition(" ")[0] == peer
        ]
        nothing = "there is no form that it runs" if results else "no case was measured"
        why = PEERS[peer].absent or max(reasons, key=reasons.count, default=nothing)
        ran = len(results) - len(without)
        found[peer] = Presence(ran, len(results), None if ran and not without else why)
    return found


def summary(results: Sequence[Result]) -> dict[str, dict[str, float | None]]:
    """By class: geomean and least ratio to the best peer, fraction of the roof, time to a cold kernel."""
    classes: dict[str, dict[str, float | None]] = {}
    for klass in dict.fromkeys(result.klass for result in results):
        rows = [result for result in results if result.klass == klass]
        ratios = [r.ratio_to_best_peer for r in rows if r.ratio_to_best_peer]
        cold_ms = sorted(
            r.construct_ms + r.compile_ms
            for r in rows
            if r.construct_ms is not None and r.compile_ms is not None
        )
        cached_ms = [r.cached_ms for r in rows if r.cached_ms is not None]
        entry: dict[str, float | None] = {
            "cases": len(rows),
            "geomean": geomean(ratios),
            "least": min(ratios, default=None),
            "median_fraction_of_roof": statistics.median(r.fraction_of_roof for r in rows),
            "median_fraction_of_read_roof": statistics.median(
                r.fraction_of_read_roof for r in rows
            ),
            "cold_ms_median": statistics.median(cold_ms) if cold_ms else None,
            "cold_ms_p95": cold_ms[math.ceil(0.95 * len(cold_ms)) - 1] if cold_ms else None,
            "cached_ms_median": statistics.median(cached_ms) if cached_ms else None,
        }
        for peer in dict.fromkeys(name for r in rows for name in r.peers_us):
            known = [r.ratios[peer] for r in rows if peer in r.ratios]
            entry[f"cases_with_{peer}"] = len(known)
            entry[f"geomean_to_{peer}"], entry[f"least_to_{peer}"] = geomean(known), min(known)
        for name in ("eager emitted", "compile emitted", "eager stages", "compile stages"):
            known = [r.ratios[name] for r in rows if name in r.ratios]
            if known:
                entry[f"geomean_to_{name.replace(' ', '_')}"] = geomean(known)
        pairs = [(r.predicted_us, r.us) for r in rows if r.predicted_us is not None]
        errors = sorted(abs(math.log(predicted / us)) for predicted, us in pairs)
        if errors:
            entry["prediction_error_median"] = math.expm1(statistics.median(errors))
            entry["prediction_error_p90"] = math.expm1(errors[math.ceil(0.9 * len(errors)) - 1])
        if len(pairs) > 2:
            entry["rank_correlation_of_prediction"] = rank_correlation(*zip(*pairs, strict=True))
        classes[klass] = entry
    return classes
