"""One case measured: the kernel and its peers in turns, results checked, beside what the machine allows."""

from __future__ import annotations

import logging
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelbench.cases import Case
from kernelbench.forms import TOLERANCE, difference, forms_of, inputs_of
from kernelbench.instructions import MOST, sampled
from kernelbench.limit import OutOfTime, time_limit
from kernelbench.peers import (
    PEERS,
    Form,
    Peer,
    Unavailable,
    compiled_calls_only,
    first_line,
    graph_of,
    result_array,
)
from kernelbench.results import Result, Settings
from kernelbench.roof import peak_gflops, roof
from kernelbench.training import training_contestants
from syno import _core
from syno.errors import KernelError
from syno.kernels.construct import construct
from syno.kernels.kernel import Kernel
from syno.kernels.prepack import prepacked
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.numbers import significant
from syno.timing.bench import Timing, measure

_log = logging.getLogger("kernels")
#: Calls of a contestant that seems too slow, before it is left out.
_TRIES = 5


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
        contestants, error = training_contestants(case, tensors, settings, absent, at_work)
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
            worst = difference(got, expected)
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
        fraction_of_peak=gflops / peak_gflops(case, settings),
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
