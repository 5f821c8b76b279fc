"""What a caller's numbers and a stranger's files ask for is bounded: a sentence before memory or minutes are taken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from syno import _core, errors
from syno.cli.main import app
from syno.errors import FormatError, ParseError, ShapeError, SpecError, SynoError, UnknownName
from syno.operators.operator import Operator

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


def limited(code: str, gigabytes: int = 3) -> str:
    """What a child prints that may take so much address space."""
    head = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({gigabytes} << 30,) * 2)\n"
    head += "from syno.operators.operator import Operator\nfrom syno import _core\n"
    child = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr[-3000:]
    return child.stdout.strip()


# Keys


def test_a_key_takes_memory_by_terms_not_by_extents() -> None:
    keys = limited(
        "for text in ['x[i*1000000000]', 'x[i*1000000001]', 'x[1000000000*i]', 'x[i*999999999+i]']:\n"
        "    print(Operator.parse(f'y[i] = {text}', i=9).canonical_hash)\n"
    ).split()
    assert keys[0] == keys[2] == keys[3] != keys[1]


def test_a_key_of_long_indices_holds_few_of_their_values_at_a_time() -> None:
    index = "i" + "".join(f" + (j+{k})/{k + 2}" for k in range(60))
    text = f"y[i] = sum[j] x[{index}]"
    assert len(limited(f"print(Operator.parse({text!r}, i=1000, j=2000).canonical_hash)")) == 32


def test_a_key_of_many_reads_of_one_input_is_not_compared_in_every_order_at_any_size() -> None:
    product = " * ".join(f"x[i+{k}]" for k in range(6))
    first = Operator.parse(f"y[i] = {product}", i=2**21)
    assert first == Operator.parse(f"y[j] = {product.replace('i', 'j')}", j=2**21)
    assert first != Operator.parse(f"y[i] = {product}", i=2**21 + 1)


def test_programs_that_double_at_every_statement_have_a_key() -> None:
    lines = ["t0[i] = x[i] * x[i]"] + [f"t{k}[i] = t{k - 1}[i] * t{k - 1}[i]" for k in range(1, 40)]
    text = "\n".join(lines)
    assert len(limited(f"print(Operator.parse({text!r}, i=4).canonical_hash)")) == 32


# Memory


@pytest.mark.parametrize(
    "text", ["y[i] = x[i]", "y[i] = i", "y[i] = sum[j] x[i,j]", "y[i+j] += x[i] * w[j]"]
)
def test_more_memory_than_there_is_is_refused_in_a_sentence(text: str) -> None:
    sizes = {"i": 2**40, "j": 2} if "j" in text else {"i": 2**40}
    op = Operator.parse(text, **sizes)
    with pytest.raises(ShapeError, match=r"1099511627776.*(GiB|TiB).*available"):
        op.compile()


def test_products_of_extents_that_leave_64_bits_are_refused() -> None:
    op = Operator.parse("y[i,j,k] = x[i,j,k]", i=2**40, j=2**40, k=2**40)
    with pytest.raises(SynoError, match="1099511627776 x 1099511627776 x 1099511627776"):
        op.compile()
    with pytest.raises(SynoError, match="64 bits"):
        assert op.flops


def test_layouts_of_absurd_numbers_are_refused() -> None:
    program = _core.Program.parse(
        "t[i] = x[i] * 2; y[j] = sum[i] t[i] * w[i,j]", sizes={"i": 8, "j": 8}
    )
    for numbers, words in [
        ([0, 2**62, 2**62], "pad"),
        ([0, 2**62 + 2, 4], "split"),
        ([0, 2**63 - 1], "store_at"),
    ]:
        schedule = _core.Schedule().add("layout", "t", tensor="t", numbers=numbers, words=[words])
        with pytest.raises(SynoError, match=str(max(numbers))):
            _core.apply_schedule(program, schedule)


def test_elements_without_bytes_have_no_peak() -> None:
    with pytest.raises(ShapeError, match="elements of 0 bytes"):
        _core.describe_machine(None).peak_gflops(0)


# Readers


def test_a_size_that_a_spec_has_no_number_for_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(
        app, ["explain", "conv", "--spec", "resnet18", "--size", "kernel=5"]
    )
    assert result.exit_code == 1
    assert "the size 5 holds the number 5" in result.output and "resnet18" in result.output


def test_an_operator_larger_than_a_search_is_not_replayed() -> None:
    spec = _core.spec_named("test")
    head = _core.named_operator("conv1x1", spec).text().split("c4 =")[0]
    steps = [f"c{4 + k} = shift c{3 if k == 0 else 3 + k} by 1" for k in range(20)]
    text = f"{head}{chr(10).join(steps)}\nc24 = reduce C_in\nweight w1 = share c24 match c1\ninput = c0 c24 c2 c23\n"
    graph = _core.PGraph.parse(text)
    with pytest.raises(SpecError, match="more steps than a search takes, 18"):
        _core.derivation(spec, graph)


def test_pgraphs_are_read_up_to_a_budget() -> None:
    head = "syno-pgraph 1\noutput" + " n:2" * 8 + "\ninput" + " n:2" * 8 + "\n"
    assert _core.PGraph.parse(head + "input = c7 c6 c5 c4 c3 c2 c1 c0\n")
    with pytest.raises(ParseError, match="9 dimensions; at most 8"):
        _core.PGraph.parse(head.replace("output", "output m:2"))
    reduces = "".join(f"c{8 + k} = reduce 2\n" for k in range(9))
    with pytest.raises(ParseError, match="more than 8 reductions"):
        _core.PGraph.parse(f"{head}{reduces}input = c7 c6 c5 c4 c3 c2 c1 c0\n")
    with pytest.raises(ParseError, match="nested too deeply"):
        _core.PGraph.parse("syno-pgraph 1\noutput n:" + "(" * 500_000)


@pytest.mark.parametrize(
    "read",
    [
        _core.Spec.from_json,
        _core.MachineModel.from_json,
        _core.Schedule.from_json,
        lambda text: _core.Tree.from_json(_core.spec_named("test"), text),
    ],
)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"version": ' + "9" * 1_000_000 + "}", "more than 400 digits"),
        ("[" * 200_000 + "]" * 200_000, "nested deeper than 64"),
        ('{"format": 1e999}', "JSON"),
        ("\0", "JSON"),
        ("{", "JSON"),
    ],
)
def test_json_is_read_up_to_a_budget(read, text: str, what: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FormatError, match=what) as caught:
        read(text)
    assert len(str(caught.value)) < 1000


def test_numbers_that_no_extent_has_are_refused() -> None:
    spec = json.loads(_core.spec_named("test").to_json())
    spec["budgets"]["max_flops"] = None
    spec["output"][2]["extent"] = spec["input"][2]["extent"] = 2**61 - 1
    with pytest.raises(SynoError, match="2305843009213693951"):
        _core.why_empty(_core.Spec.from_json(json.dumps(spec)), max_steps=2)
    with pytest.raises(FormatError, match="64 bits"):
        _core.Spec.from_json(json.dumps({**spec, "fixed": [[2**64 - 1, 0]]}))


@pytest.mark.parametrize("what", ["(", "-", "relu("])
def test_texts_nested_without_end_are_refused(what: str) -> None:
    with pytest.raises(ParseError):
        Operator.parse("y[i] = " + what * 100_000 + "x[i]", i=2)
    with pytest.raises(ParseError):
        Operator.parse("y[i] = x[" + what * 400 + "i]", i=2)
    with pytest.raises(ParseError):
        _core.LoopNest.parse("nest f\noutput y : f32 [2]\ny[0] = " + what * 100_000 + "1\n")
    with pytest.raises(ParseError):
        _core.LoopNest.parse("nest f\noutput y : f32 [2]\ny[" + what * 100_000 + "0] = 1\n")


def test_loops_unrolled_around_each_other_are_bounded() -> None:
    depth = 3
    loops = "".join(f"{'  ' * d}for i{d} in 0..1000 unroll\n" for d in range(depth))
    text = f"nest f\noutput y : f32 [1000]\n{loops}{'  ' * depth}y[i0] = 1\n"
    with pytest.raises(SynoError, match="copies of what is inside"):
        _core.compile_nest(_core.LoopNest.parse(text))


def chain(length: int) -> str:
    lines = [f"t{k}[i] = sum[r: 3] t{k - 1}[i+r-1] * w[r]" for k in range(1, length)]
    return "\n".join(["t0[i] = sum[r: 3] x[i+r-1] * w[r]", *lines])


def test_programs_are_as_long_as_their_passes_bear() -> None:
    with pytest.raises(ParseError, match="more than 10000 statements"):
        _core.Program.parse(chain(10_001), sizes={"i": 2}, shapes={"x": [2]})
    program = _core.Program.parse(chain(10_000), sizes={"i": 2}, shapes={"x": [2]})
    values, _ = program.interpret_points({"x": [1.0, 2.0], "w": [0, 1, 0]}, "t9999", [[1]])
    assert values == [2.0]
    with pytest.raises(SynoError, match=r"9999 intermediate results.* more than 3000"):
        _core.default_schedule(program)


# Sentences


def test_long_input_is_shortened_in_sentences() -> None:
    long = "z" * 1_000_000
    number = "9" * 1_000_000
    for wrong in (
        lambda: Operator.parse("y[i] = x[i]", i=10**1_000_000),
        lambda: Operator.parse("y[i] = x[i]", i=long),  # type: ignore[arg-type]
        lambda: Operator.parse("y[i] = x[i]", i=2, **{long: 3}),
        lambda: Operator.parse(f"y[i] = {long}[i]", i=2).program.role("q"),
        lambda: Operator.parse(f"y[i] = {number} * x[i]", i=2),
        lambda: Operator.parse(f"y[i] = {long}(x[i])", i=2),
        lambda: Operator.parse("y[i] = x[i]", i=2).compile(long),
        lambda: _core.spec_named(long),
        lambda: _core.PGraph.parse(f"syno-pgraph 1\n{long}"),
        lambda: _core.Schedule.parse(f"schedule {long}"),
        lambda: _core.LoopNest.parse(f"nest f\n{long}[0] = 1"),
    ):
        with pytest.raises(SynoError) as caught:
            wrong()
        assert 10 < len(str(caught.value)) < 5000


def test_valid_names_are_listed_once_each_in_order() -> None:
    with pytest.raises(UnknownName, match=r"Valid: i, j, k$"):
        Operator.parse(
            "t[i,j] = sum[k] x[i,k]*w[k,j]; y[i,j] = t[i,j] * sum[k] v[k,i]", i=2, j=2, k=2, zzz=3
        )
    error = errors.unknown_name(
        "dtype", "x" * 10_000, ["b", "a", "b", *(f"n{k:03}" for k in range(100))]
    )
    assert "Valid: a, b, n000, n001" in str(error) and str(error).endswith("and 62 more")
    assert len(str(error)) < 1000


def test_what_is_shown_of_a_value() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert errors.shown("ab") == "'ab'" and errors.shown(-(10**500)) == "-about 10^500"
    assert errors.shown(Odd()) == "a Odd" and len(errors.shown("é" * 10**6)) < 120
    assert errors.shown("\ud800").isascii()


def test_text_that_is_no_unicode_reaches_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParseError):
        Operator.parse("y[i] = x[i] \x00 \x1b[2J é", i=2)
    path = tmp_path / "spec.json"
    path.write_text('{"name": 3}')
    result = CliRunner().invoke(app, ["explain", "conv", "--spec", str(path)])
    assert result.exit_code == 1 and "expected a text, not 3" in result.output


WITHOUT_CHECKS = """
import threading
import numpy as np
operator = Operator.parse(
    "t[i,j] = sum[k] a[i,k] * a[j,k]; u[] = max[i,j] t[i,j]; y[i,j] = t[i,j] - u[]", i=2048, j=2048, k=2
)
program = operator.program
kernel = _core.compile_nest(_core.apply_schedule(program, _core.default_schedule(program)))
a, y = np.ones((2048, 2), np.float32), np.ones((2048, 2048), np.float32)

def call():
    try:
        kernel.call_pointers([a.ctypes.data, y.ctypes.data], 1)
        print("called", np.abs(y).max(), end="; ")
    except Exception as error:
        print(type(error).__name__, error, end="; ")

def from_a_new_thread():  # which has no memory for intermediate results yet
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

taken = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (taken + (12 << 20), resource.RLIM_INFINITY))
from_a_new_thread()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
from_a_new_thread()
"""


def test_a_call_without_checks_that_gets_no_memory_says_so() -> None:
    head = "import resource\nfrom syno import _core\nfrom syno.operators.operator import Operator\n"
    child = subprocess.run(
        [sys.executable, "-c", head + WITHOUT_CHECKS], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr[-3000:]
    refused, called, _ = child.stdout.split("; ")
    said = re.match(r"KernelError \[kernel\] there is no memory for (\d+) bytes", refused)
    assert said is not None, refused
    assert 2**24 < int(said[1]) < 2**24 + 2**18  # rows are padded to this CPU's vectors
    assert called == "called 0.0"
