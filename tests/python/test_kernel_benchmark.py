"""The kernel benchmark: native calls it recognises, case files it reads, and what it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S

from syno import _core
from syno.errors import KernelError, SynoError
from syno.machines.model import machine_model
from syno.operators.operator import Operator

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]

from kernelbench import forms as kernelbench_forms  # noqa: E402
from kernelbench import results as kernelbench_results  # noqa: E402
from kernelbench import run as kernelbench_run  # noqa: E402
from kernelbench.cases import CLASSES, Case, attention_text, conv2d, read_cases  # noqa: E402
from kernelbench.limit import OutOfTime, new_threads_on, time_limit  # noqa: E402
from kernelbench.native import native_forms  # noqa: E402
from kernelbench.peers import (  # noqa: E402
    PEERS,
    Form,
    Peer,
    Unavailable,
    _eager,
    compiled_calls_only,
    first_line,
    graph_of,
    keep_compiled,
    result_array,
)
from kernelbench.results import Settings  # noqa: E402
from kernelbench.worker import Worker  # noqa: E402

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
SMALL = {"n": 2, "o": 6, "c": 4, "h": 5, "w": 6, "r": 3, "s": 3}


def agree(operator: Operator, function: Callable[..., Any]) -> None:
    """The function computes what the interpreter does."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(operator.shapes[name]) for name in operator.inputs]
    got = function(*map(torch.from_numpy, arrays)).numpy()
    expected = operator.reference(*arrays)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def parsed(text: str, **sizes: int) -> Operator:
    return Operator.parse(text, weights=[], **sizes)


RECOGNISED = {
    "conv2d": parsed(CONV, **SMALL),
    "conv1d": parsed("y[n,o,h] = sum[c,r] x[n,c,2*h+3*r-1] * k[o,c,r]", n=2, o=4, c=3, h=5, r=3),
    "conv3d": parsed(
        "y[n,o,d,h,w] = sum[c,q,r] x[n,c,d+q-1,h+r-1,w] * k[o,c,q,r]",
        **{"n": 1, "o": 3, "c": 2, "d": 3, "h": 4, "w": 5, "q": 3, "r": 3},
    ),
    "matmul": parsed("y[m,n] = sum[k] a[m,k] * b[n,k] / 8", m=3, n=4, k=5),
    "max_pool2d": Operator(
        _core.pool(
            "max", channels=3, in_size=[7, 8], kernel=[3, 2], stride=[2, 2], pad_begin=[1, 0]
        )
    ),
    "avg_pool1d": parsed("y[n,c,h] = mean[r] x[n,c,3*h+r]", n=2, c=3, h=4, r=3),
    "softmax": parsed("y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])", i=3, j=5, k=5),
    "layer_norm": Operator(_core.layer_norm(shape=[4, 6])),
    "scaled_dot_product_attention": parsed(attention_text(["b"], " / 2"), b=2, i=3, j=5, c=4, d=4),
    "conv_transpose2d": Operator(
        _core.conv_transposed(
            in_channels=3,
            out_channels=2,
            in_size=[4, 5],
            kernel=[3, 4],
            stride=[2, 3],
            pad_begin=[1, 0],
        )
    ),
    "einsum": parsed("y[i,l] = sum[j,k] a[i,j] * b[j,k] * c[k,l]", i=2, j=3, k=4, l=5),
}


@pytest.mark.parametrize("call", RECOGNISED)
def test_a_native_call_is_recognised_from_the_expression(call: str) -> None:
    operator = RECOGNISED[call]
    form = native_forms(operator.program)["native"]
    assert form.calls == (call,)
    agree(operator, form.function)


@pytest.mark.parametrize(
    "text",
    [
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h-r+2,w+s-1] * k[o,c,r,s]",  # taps run backwards
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,s]",  # taps without weights
        "y[n,o,h,w] = max[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",  # no sum
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,h+r,s]",  # a window on the weight
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s] * z[o]",  # three factors
        "y[n,o,h,w] = sum[c,r,s] x[n,(3*c+h)%4,h+r-1,w+s-1] * k[o,c,r,s]",  # an iterator twice
    ],
)
def test_what_is_no_convolution_is_not_taken_for_one(text: str) -> None:
    operator = parsed(text, **SMALL)
    forms = native_forms(operator.program)
    for form in forms.values():
        assert form.calls != ("conv2d",) or "h-r" in text  # by a gather, with the taps as channels
        agree(operator, form.function)


@given(
    batch=st.integers(1, 2),
    out=st.integers(1, 3),
    inner=st.integers(1, 3),
    groups=st.integers(1, 3),
    size=st.integers(3, 6),
    taps=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    before=st.integers(-1, 3),
)
@settings(max_examples=40, deadline=None)
def test_every_form_of_a_convolution_is_the_operator(
    batch: int,
    out: int,
    inner: int,
    groups: int,
    size: int,
    taps: int,
    stride: int,
    dilation: int,
    before: int,
) -> None:
    channel = f"{inner}*(o/{out})+c" if groups > 1 else "c"
    offset = f"-{before}" if before > 0 else f"+{-before}" if before else ""
    text = (
        f"y[n,o,h,w] = sum[c,r,s] x[n,{channel},{stride}*h+{dilation}*r{offset},w+s] * k[o,c,r,s]"
    )
    x = (batch, inner * groups, size, size + taps - 1)
    sizes = {"n": batch, "o": out * groups, "c": inner, "h": size, "w": size, "r": taps, "s": taps}
    operator = Operator.parse(text, shapes={"x": x}, weights=["k"], **sizes)
    forms = native_forms(operator.program)
    assert "native" in forms
    for form in forms.values():
        agree(operator, form.function)


@given(st.integers(0, 10_000), st.integers(0, 18))
@example(110, 0)  # reads a diagonal of the data
@settings(max_examples=12, deadline=None)
def test_every_form_of_a_synthesised_operator_is_the_operator(seed: int, valuation: int) -> None:
    graphs = _core.sample_operators(_core.spec_named("conv"), n=1, seed=seed)
    staged = graphs[0].staged()
    values = dict(staged.valuations[valuation % staged.valuation_count])
    small = {n: (1 if n == "N" else 8 if n.startswith("C") else v) for n, v in values.items()}
    try:
        program = staged.with_valuations([small]).at(0)
    except SynoError:
        return  # a size is no integer at so few channels
    operator = Operator(program)
    for form in native_forms(program).values():
        agree(operator, form.function)


def test_a_kept_tap_in_groups_is_the_operator() -> None:
    text = (
        "t[n,r,g,c,h,w] = sum[d,s] x[n,4*g+d,h+r-1,w+s-1] * a[c,r,s,4*g+d]; "
        "y[n,o,h,w] = sum[r,g,c] t[n,r,g,c,h,w] * b[o,g,c,r]"
    )
    operator = parsed(text, n=1, r=3, s=3, g=2, c=3, d=4, h=5, w=5, o=6)
    forms = native_forms(operator.program)
    assert forms["conv"].calls == ("conv2d", "conv2d")
    for form in forms.values():
        agree(operator, form.function)


def test_a_bias_goes_into_the_convolution() -> None:
    text = "y[n,o,h,w] = max(sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s] + b[o], 0)"
    operator = parsed(text, **SMALL)
    agree(operator, native_forms(operator.program)["native"].function)


def test_eager_is_tried_channels_last() -> None:
    case = conv2d("c", "dense", 4, 6, 5)
    form = native_forms(case.operator.program)["native"].function
    weight = torch.randn(6, 4, 3, 3)
    module = Form(form, ["x", "k"], {"k": weight})
    calls = _eager(module, [torch.randn(1, 4, 5, 5)], 1)
    assert set(calls) == {"", "channels last"}
    plain, last = (result_array(calls[name]()) for name in calls)
    np.testing.assert_allclose(plain, last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in CLASSES if n not in ("synthesised", "training")])
def test_built_in_cases_are_operators(name: str) -> None:
    cases = list(CLASSES[name]())
    assert len({case.name for case in cases}) == len(cases) > 3
    for case in cases:
        assert set(case.constant) <= set(case.operator.inputs)
        assert case.operator.concrete


GOOD = {"name": "a", "expr": "y[i] = 2 * x[i]", "sizes": {"i": 8}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expr": ""}, r"\[0\]\.expr must be a text"),
        ({"colour": 1}, r"\[0\]\.colour is unknown; there are: .*shapes"),
        ({"sizes": {"i": 0}}, r"\[0\]\.sizes\.i is 0; it must be an integer from 1"),
        ({"sizes": {"i": True}}, r"\[0\]\.sizes\.i is True"),
        ({"sizes": {"i": 10**9 * 3}}, r"\[0\]\.sizes\.i is 3000000000"),
        ({"sizes": [8]}, r"\[0\]\.sizes must be an object"),
        ({"shapes": {"x": 8}}, r"\[0\]\.shapes\.x must be a list|shapes\.x must be"),
        ({"shapes": {"x": [0]}}, r"\[0\]\.shapes\.x is 0"),
        ({"dtype": "int8"}, r"\[0\]\.dtype is 'int8'; there are: float32"),
        ({"dtype": ["float32"]}, r"\[0\]\.dtype is \['float32'\]"),
        ({"constant": "x"}, r"\[0\]\.constant must be a list"),
        ({"constant": ["k"]}, r"a: .*k"),
        ({"strides": {"x": [-1]}}, r"\[0\]\.strides\.x is -1; a stride is an integer from 0"),
        ({"strides": {"x": [1, 1]}}, r"\[0\]\.strides\.x has 2 numbers for the shape \[8\]"),
        ({"strides": {"k": [1]}}, r"\[0\]\.strides\.k is no input; there are: x"),
        ({"strides": {"x": [10**9]}}, r"\[0\]\.strides\.x reach beyond"),
        ({"sizes": {"i": 2**30 + 1}}, r"has 1,073,741,825 elements"),
        ({"sizes": {}}, r"a: .*size"),
        ({"expr": "y[i] = x[i"}, r"a: "),
        ({"expr": "y[i] = x[i]; z[i] = x[i]; return y, z"}, r"has 2 outputs; a case has one"),
    ],
)
def test_a_case_that_makes_no_sense_gets_a_sentence(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([{**GOOD, **change}]))
    with pytest.raises(SynoError, match=message):
        read_cases(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{}", "must hold a list"),
        ("[]", "at least one case"),
        ("[1]", r"\[0\] is a int, not an object"),
        (json.dumps([GOOD, GOOD]), r"\[1\]\.name: 'a' is there twice"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_holds_no_cases_gets_a_sentence(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(SynoError, match=message):
        read_cases(path)


def test_cases_of_a_file_are_measured_beside_eager(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    cases = [
        {"name": "conv", "expr": CONV, "sizes": SMALL, "constant": ["k"]},
        {
            "name": "view",
            "expr": "y[m,n] = sum[k] a[m,k] * b[k,n]",
            "shapes": {"a": [9, 7], "b": [7, 5]},
            "strides": {"a": [20, 2], "b": [1, 9]},
            "dtype": "float64",
        },
        {"name": "half", "expr": CONV, "sizes": SMALL, "constant": ["k"], "dtype": "bfloat16"},
    ]
    path.write_text(json.dumps(cases))
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--cases", str(path)]
    command += ["--peers", "eager", "--turns", "3", "--json", "--plots", str(tmp_path / "plots")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    report = json.loads(done.stdout)
    assert [case["name"] for case in report["cases"]] == ["conv", "view", "half"]
    for case in report["cases"]:
        assert case["us"] > 0 and case["peers_us"]["eager"] > 0
        assert case["best_peer"] == "eager" and case["ratio_to_best_peer"] > 0
        assert case["max_rel_err"] < (2**-8 if case["name"] == "half" else 1e-5)
        assert case["compile_ms"] > case["cached_ms"] > 0 and case["construct_ms"] > 0
    assert report["geomean"] > 0 and report["machine"]["cores"] >= 1
    assert sorted(p.name for p in (tmp_path / "plots").iterdir()) == ["ratios.svg", "roofline.svg"]


def measured_by_a_system_that_crashes(
    case: Case,
    settings: Settings,
    left_out: Mapping[str, str],
    at_work: Callable[[int], None],
) -> dict[str, str]:
    """Dies at the peer `openvino`, and where no peer is at work for a case called `ours`."""
    for number, name in enumerate(settings.peers):
        if name in left_out:
            continue
        at_work(number)
        if name == "openvino":
            os.kill(os.getpid(), signal.SIGKILL)
        at_work(-1)
    if case.name == "ours":
        os.kill(os.getpid(), signal.SIGKILL)
    return dict(left_out)


def test_a_peer_whose_call_fails_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kernelbench import run

    def fails() -> None:
        raise AssertionError("a guard failed\nand more")

    peer = Peer("compile", ("torch",), lambda form, tensors, threads: {"": fails})
    monkeypatch.setitem(run.PEERS, "compile", peer)
    case = Case("conv", CONV, SMALL)
    tensors = kernelbench_forms.inputs_of(case)
    expected = case.operator.reference(*(t.numpy() for t in tensors))
    absent: dict[str, str] = {}
    settings = Settings(["compile", "eager"], 1, 3, "")
    found = run._peers(case, tensors, expected, settings, absent, lambda number: None)
    assert absent == {"compile native conv2d": "a guard failed"}
    assert found and all(name.startswith("eager") for name in found)


GATHERED = parsed("y[n,o,h] = sum[c] x[n,(3*c+1)%4,h] * k[o,c]", n=1, o=3, c=4, h=5)
"""An index that no view makes: its native form has a table of places."""


def formed(operator: Operator, held: bool) -> tuple[dict[str, Form], list[Any]]:
    """Native forms in float64, the last input constant or not, and the other inputs."""
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn(operator.shapes[name], generator=generator, dtype=torch.float64)
        for name in operator.inputs
    }
    last = operator.inputs[-1]
    constants = {last: tensors.pop(last)} if held else {}
    forms = {
        name: Form(native.function, operator.inputs, constants)
        for name, native in native_forms(operator.program).items()
    }
    return forms, list(tensors.values())


@pytest.mark.parametrize("operator", [*RECOGNISED.values(), GATHERED], ids=[*RECOGNISED, "gather"])
@pytest.mark.parametrize("held", [False, True])
def test_the_graph_of_a_form_is_the_form(operator: Operator, held: bool) -> None:
    forms, tensors = formed(operator, held)
    assert forms
    for form in forms.values():
        torch.testing.assert_close(graph_of(form, tensors)(*tensors), form(*tensors))


def test_a_graph_gathers_by_a_table_made_before() -> None:
    forms, tensors = formed(GATHERED, held=True)
    graph = graph_of(forms["native"], tensors).graph
    called = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    assert "aten.index_select.default" in called
    assert not any("lift" in name or "to." in name or "arange" in name for name in called)


def test_a_form_without_a_graph_is_unavailable() -> None:
    form = Form(lambda x: x if x.sum() > 0 else -x, ["x"], {})
    with pytest.raises(Unavailable, match="no graph"):
        graph_of(form, [torch.zeros(3)])


def test_compiled_forms_run_as_compiled_or_not_at_all() -> None:
    forms, tensors = formed(GATHERED, held=True)
    with torch.no_grad():
        graph = graph_of(forms["native"], tensors)
    with torch.inference_mode():
        call = PEERS["compile"].prepare(graph, tensors, 1)[""]
    with torch.inference_mode(), compiled_calls_only():
        torch.testing.assert_close(call(), forms["native"](*tensors))
    with torch.no_grad(), compiled_calls_only(), pytest.raises(RuntimeError, match="recompile"):
        call()  # guards ask for the mode that it was compiled in


def test_inductor_keeps_its_code_where_it_is_told_or_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    for directory, expected in (
        ("/elsewhere", "/elsewhere"),
        (default_cache_dir(), "syno/inductor"),
    ):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", directory)
        keep_compiled()
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(expected)


@pytest.mark.nightly
def test_training_is_timed_beside_compiled_forms() -> None:
    case = Case("gather", GATHERED.expr, {"n": 1, "o": 3, "c": 4, "h": 5}, training=True)
    # On a busy machine no peer is left out for its one slow call.
    settings = Settings(["eager", "compile"], 1, 3, machine_model().to_json(), limit_s=PATIENCE_S)
    result = kernelbench_run.run_case(case, settings, {}, lambda _: None)
    assert not result.absent
    assert set(result.peers_us) == {"eager", "compile"} and result.max_rel_err < 1e-5
    entry = kernelbench_results.summary([result])["file"]
    assert (
        entry["cases_with_compile"] == 1 and entry["least_to_compile"] == result.ratios["compile"]
    )


def test_what_takes_too_long_is_left_out() -> None:
    def prepare() -> None:
        try:
            threading.Event().wait(PATIENCE_S)
        except Exception as error:
            raise RuntimeError("wrapped by who was at work") from error

    with pytest.raises(OutOfTime, match="not ready after 0 s"), time_limit(0.05):
        prepare()
    with time_limit(PATIENCE_S):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)  # no alarm afterwards
    with pytest.raises(ZeroDivisionError), time_limit(PATIENCE_S):
        _ = 1 / 0


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinities")
def test_threads_that_begin_under_a_limit_keep_it_and_no_others() -> None:
    before = os.sched_getaffinity(0)
    go = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with new_threads_on(1):
            of_new = pool.submit(lambda: (go.wait(10), os.sched_getaffinity(0))[1])
        assert os.sched_getaffinity(0) == before
        go.set()
        assert len(of_new.result()) == 1
    with pytest.raises(ValueError, match="in the block"), new_threads_on(1):
        raise ValueError("in the block")
    assert os.sched_getaffinity(0) == before


@pytest.mark.nightly
def test_a_run_that_is_terminated_prints_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    sizes = {"n": 1, "o": 4, "c": 4, "h": 6, "w": 6, "r": 3, "s": 3}
    path.write_text(json.dumps([{"name": f"{i}", "expr": CONV, "sizes": sizes} for i in range(99)]))
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--cases", str(path)]
    command += ["--peers", "eager", "--turns", "3"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        running.terminate()
        rest, problems = running.communicate(timeout=PATIENCE_S)
    assert first.startswith("0 ") and "geomean" in rest
    assert "interrupted" in problems and running.returncode == 1


@pytest.mark.nightly
def test_a_peer_that_crashes_costs_its_own_column_only() -> None:
    settings = Settings(["eager", "openvino", "xla"], 1, 3, "")
    with Worker(settings, measured_by_a_system_that_crashes) as worker:  # type: ignore[arg-type]
        for name in ("first", "second"):
            left_out = worker.measure(Case(name, CONV, SMALL))
            assert list(left_out) == ["openvino"]
            assert "crash" in left_out["openvino"]
        with pytest.raises(KernelError, match="ours: the process died"):
            worker.measure(Case("ours", CONV, SMALL))
        assert worker.measure(Case("after it", CONV, SMALL))


def test_compiled_forms_are_forgotten_before_all_peers_and_never_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A form that is forgotten later is compiled again when it is called, then without freezing."""
    happened: list[str] = []

    def peer(name: str) -> Peer:
        def prepare(form: Any, tensors: Any, threads: int) -> dict[str, Callable[[], Any]]:
            happened.append(name)
            return _eager(form, tensors, threads)

        return Peer(name, ("torch",), prepare)

    monkeypatch.setattr(torch._dynamo, "reset", lambda: happened.append("reset"))
    monkeypatch.setattr(kernelbench_run, "PEERS", {name: peer(name) for name in ("one", "two")})
    case = conv2d("conv", "dense", 4, 6, 5)
    operator = case.operator
    given = kernelbench_forms.inputs_of(case)
    settings = Settings(("one", "two"), 1, 3, "")
    expected = operator.reference(*(tensor.numpy() for tensor in given))
    calls = kernelbench_run._peers(case, given, expected, settings, {}, lambda _: None)
    assert calls and {name.split()[0] for name in calls} == {"one", "two"}
    assert happened[0] == "reset" and happened.count("reset") == 1


def test_a_peer_that_cannot_be_imported_is_left_out_with_the_reason() -> None:
    def prepare(form: Any, tensors: Any, threads: int) -> dict[str, Callable[[], Any]]:
        raise ImportError("libsomething.so: cannot open shared object file")

    case = Case("conv", CONV, SMALL)
    tensors = kernelbench_forms.inputs_of(case)
    absent: dict[str, str] = {}
    calls = kernelbench_run._of_peer(
        Peer("xla", ("torch",), prepare),
        kernelbench_forms.forms_of(case),
        case.operator.inputs,
        {},
        tensors,
        Settings(["xla"], 1, 3, ""),
        absent,
    )
    assert not calls
    assert "ImportError: libsomething.so" in absent["xla native conv2d"]


def test_a_report_gives_the_first_line_of_an_error() -> None:
    assert first_line(ValueError("\n\n  \nno such thing\nat all")) == "no such thing"
    assert first_line(KeyError()) == "KeyError"
    assert len(first_line(ValueError("x" * 1000))) == 160


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--peers", "tvm"], "eager"),
        (["--classes", "huge"], "dense"),
        (["--classes", "dense", "--filter", "nothing"], "case"),
        (["--classes", "dense", "--threads", "0"], "--threads must be at least 1"),
    ],
)
def test_an_option_that_makes_no_sense_is_a_usage_error(
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import kernels

    monkeypatch.setattr(sys, "argv", ["kernels.py", *options])
    assert kernels.main() == 2
    assert message in capsys.readouterr().err
