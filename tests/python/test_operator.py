"""Operators: formulas and pGraphs as values, with exact costs, other shapes, and files."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno.errors import FormatError, ParseError, ShapeError, UnknownName
from syno.operators.operator import Operator
from syno.operators.operator_file import schema
from syno.operators.sizes import Monomial, solve

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
SYMBOLIC = """
size N, C_in, C_out, H : primary = (1, 4, 8, 6), (2, 8, 8, 3)
size k, s : coefficient = (3, 2), (3, 2)
input x[N, C_in, s*H]
weight w[C_out, C_in, k]
y[n: N, o: C_out, h: H] = sum[c: C_in, r: k] x[n, c, inside(s*h + r - 1, s*H)] * w[o, c, r]
"""


def conv(**changes) -> Operator:
    return Operator.parse(CONV, **{**dict(n=1, o=8, c=4, h=6, w=5, r=3, s=3), **changes})


def test_a_formula_has_shapes_costs_and_names():
    op = conv()
    assert op.shapes == {"x": (1, 4, 6, 5), "k": (8, 4, 3, 3), "y": (1, 8, 6, 5)}
    assert op.flops == 8 * 6 * 5 * 4 * 9
    assert op.params == 8 * 4 * 9
    assert (op.inputs, op.weights, op.data, op.outputs) == (["x", "k"], ["k"], ["x"], ["y"])
    assert op.concrete and op.valuation_count == 1


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(*[st.integers(1, 3)] * 3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_the_reference_is_the_convolution(channels, extent, kernel, stride, dilation):
    torch = pytest.importorskip("torch")
    n, c, o = channels
    text = f"y[n,o,h] = sum[c,r] x[n,c,{stride}*h+{dilation}*r] * k[o,c,r]"
    op = Operator.parse(text, n=n, c=c, o=o, h=extent, r=kernel)
    rng = np.random.default_rng(0)
    x, k = (rng.standard_normal(op.shapes[name]) for name in "xk")
    expected = torch.nn.functional.conv1d(
        torch.tensor(x), torch.tensor(k), stride=stride, dilation=dilation
    )
    np.testing.assert_allclose(op.reference(x, k=k), expected.numpy(), atol=1e-12)


def test_the_reference_checks_its_arguments():
    op = conv()
    x, k = np.zeros(op.shapes["x"]), np.zeros(op.shapes["k"])
    with pytest.raises(ShapeError, match="no value for k"):
        op.reference(x)
    with pytest.raises(ShapeError, match=r"k has shape \(3,\).*needs \(8, 4, 3, 3\)"):
        op.reference(x, np.zeros(3))
    with pytest.raises(ShapeError, match="input x is given twice"):
        op.reference(x, x=x)
    with pytest.raises(UnknownName, match="no input is named 'z'; there are: x, k"):
        op.reference(x, k, z=x)
    with pytest.raises(ShapeError, match="3 arrays for 2 inputs"):
        op.reference(x, k, k)


def test_equality_is_of_operators_not_of_names():
    same = Operator.parse(
        "out[b,f,i,j] = sum[q,p,c] data[b,c,i+p-1,j+q-1] * w[c,f,q,p]",
        b=1, f=8, c=4, i=6, j=5, p=3, q=3,
    )  # fmt: skip
    assert conv() == same
    assert hash(conv()) == hash(same)
    assert conv() != conv(o=4)
    assert conv() != "conv"


def test_roles_of_inputs_can_be_chosen():
    text = "y[m,n] = sum[k] a[m,k] * b[k,n]"
    sizes = dict(m=2, n=3, k=4)
    assert Operator.parse(text, **sizes).weights == ["b"]
    assert Operator.parse(text, weights=[], **sizes).weights == []
    assert Operator.parse(text, data=["b"], **sizes).weights == ["a"]


def test_given_shapes_override_and_imply_sizes():
    op = Operator.parse("y[i] = x[2*i]", shapes={"x": (10,)})
    assert op.shapes["y"] == (5,)


@pytest.mark.parametrize(
    ("text", "sizes", "error", "message"),
    [
        ("y[i] = sum[j x[i,j]", {}, ParseError, r"\^"),
        ("y[i] = x[i]", {}, ShapeError, "i"),
        ("y[i] = x[i]", {"i": 0}, ShapeError, "i=0"),
        ("y[i] = x[i]", {"i": -3}, ShapeError, "i=-3"),
        ("y[i] = x[i]", {"i": 2**64}, ShapeError, "i=18446744073709551616 is not between 1 and 2"),
        ("y[i] = x[i]", {"i": 1.5}, ShapeError, "i=1.5 is a float; sizes are whole numbers"),
        ("y[i] = x[i]", {"i": "3"}, ShapeError, "i='3' is a str"),
        ("y[i] = x[i]", {"shapes": {"x": (2.0,)}}, ShapeError, "2.0 is a float"),
        ("y[i] = x[i]", {"i": 3, "q": 3}, UnknownName, "'q'"),
    ],
)
def test_bad_formulas_get_a_sentence(text, sizes, error, message):
    with pytest.raises(error, match=message):
        Operator.parse(text, **sizes)


# Other shapes


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(3, 9), st.integers(3, 9), st.integers(1, 6))
def test_a_formula_can_be_had_at_other_shapes(n, h, w, o):
    op = conv().for_shapes({"x": (n, 4, h, w), "y": (n, o, h, w)})
    assert op.shapes == {"x": (n, 4, h, w), "k": (o, 4, 3, 3), "y": (n, o, h, w)}
    assert op == conv(n=n, h=h, w=w, o=o)


def test_shapes_of_all_inputs_in_order_decide_everything():
    op = conv().for_shapes([(2, 6, 5, 5), (3, 6, 3, 3)])
    assert op.shapes["y"] == (2, 3, 5, 5)


def test_the_own_shapes_give_the_operator_itself():
    op = conv()
    assert op.for_shapes(op.shapes) is op


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        ({"x": (1, 4, 6)}, ShapeError, "dimensions"),
        ({"x": (1, 4, 6, 5), "y": (2, 8, 6, 5)}, ShapeError, "y|n"),
        ({"x": (1, 4, 6, 5), "k": (8, 5, 3, 3)}, ShapeError, "c"),
        ({"z": (1,)}, UnknownName, "no tensor is named 'z'; there are: x, k, y"),
        ([(1, 4, 6, 5)], ShapeError, "1 shapes for 2 inputs: x, k"),
    ],
)
def test_shapes_that_do_not_fit_get_a_sentence(shapes, error, message):
    with pytest.raises(error, match=message):
        conv().for_shapes(shapes)


def test_a_symbolic_operator_has_valuations():
    op = Operator.parse(SYMBOLIC)
    assert not op.concrete and op.valuation_count == 2
    assert op.valuations[1]["C_in"] == 8
    assert op.at(1).shapes == {"x": (2, 8, 6), "w": (8, 8, 3), "y": (2, 8, 3)}
    assert op.flops == sum(op.at(i).flops for i in range(2))
    assert op.at(1).symbolic is op
    with pytest.raises(ShapeError, match=r"there are 2; choose one with \.at"):
        op.shapes  # noqa: B018
    with pytest.raises(ShapeError, match="valuation 2 does not exist"):
        op.at(2)


def test_a_symbolic_operator_meets_shapes_that_are_no_valuation():
    op = Operator.parse(SYMBOLIC)
    other = op.at(0).for_shapes({"x": (5, 4, 14)})
    assert other.shapes == {"x": (5, 4, 14), "w": (8, 4, 3), "y": (5, 8, 7)}
    assert op.for_shapes({"x": (2, 8, 6), "y": (2, 8, 3)}).valuation == 1
    assert op.for_shapes({"x": (1, 4, 12), "y": (1, 5, 6)}).shapes["w"] == (5, 4, 3)
    x = np.arange(5 * 4 * 14).reshape(5, 4, 14)
    w = np.ones((8, 4, 3))
    direct = Operator.parse(
        "y[n,o,h] = sum[c,r] x[n,c,2*h+r-1] * w[o,c,r]",
        shapes={"x": (5, 4, 14), "w": (8, 4, 3)},
    )
    np.testing.assert_array_equal(other.reference(x, w), direct.reference(x, w))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"x": (1, 4, 13)},
            r"x, dimension 2 has extent 13, which does not fit its size (H\*s|s\*H)",
        ),
        ({"x": (1, 4, 12), "y": (1, 8, 5)}, r"y, dimension 2 has extent 5"),
        ({"x": (1, 4)}, r"x has 3 dimensions"),
    ],
)
def test_shapes_that_no_valuation_has_are_named(shapes, message):
    with pytest.raises(ShapeError, match=message):
        Operator.parse(SYMBOLIC).for_shapes(shapes)


# Sizes


@given(st.dictionaries(st.sampled_from("ABkg"), st.integers(-2, 3)), st.integers(1, 9))
def test_a_monomial_parses_to_its_value(powers, factor):
    text = "*".join([str(factor), *(f"{n}^{p}" for n, p in powers.items())])
    values = {"A": 2, "B": 3, "k": 5, "g": 7}
    expected = factor * np.prod([float(values[n]) ** p for n, p in powers.items()])
    assert float(Monomial.parse(text).value(values)) == pytest.approx(expected)


def test_monomials_with_quotients():
    assert Monomial.parse("2*C/g").value({"C": 12, "g": 3}) == 8
    with pytest.raises(ParseError, match="'C_in\\+1'"):
        Monomial.parse("C_in+1")


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 4))
def test_solving_finds_what_made_the_extents(h, groups, per_group):
    dims = [
        ("x", Monomial.parse("s*H"), 2 * h),
        ("w", Monomial.parse("C/g"), per_group),
        ("v", Monomial.parse("g*H"), groups * h),
    ]
    assert solve(dims, {"s": 2}) == {"s": 2, "H": h, "g": groups, "C": groups * per_group}
    assert solve([("x", Monomial.parse("s*H"), 2 * h + 1)], {"s": 2}) is None


# Files


def test_an_operator_survives_its_file(tmp_path):
    for op in (conv(), Operator.parse(SYMBOLIC), Operator.parse(SYMBOLIC).at(1)):
        path = op.save(tmp_path / "sub" / "op.syno.json", made_by="a test")
        loaded = Operator.load(path)
        assert loaded == op
        assert loaded.concrete == op.concrete and loaded.valuation == op.valuation
        if op.concrete:
            assert loaded.shapes == op.shapes
        assert json.loads(path.read_text())["provenance"] == {"made_by": "a test"}
    assert list(tmp_path.rglob("*.part")) == []


def test_a_loaded_formula_still_takes_other_shapes(tmp_path):
    loaded = Operator.load(conv().save(tmp_path / "op.json"))
    assert loaded.for_shapes({"x": (3, 4, 9, 9)}).shapes["y"] == (3, 8, 9, 9)


def test_files_are_the_same_for_the_same_operator():
    assert conv().to_json() == conv().to_json()


def damaged(**changes) -> str:
    content = json.loads(conv().to_json())
    for key, value in changes.items():
        if value is None:
            del content[key]
        else:
            content[key] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not complete JSON"),
        (conv().to_json()[:200], "not complete JSON"),
        ("[1]", "not an operator file"),
        (damaged(format="other"), "not an operator file"),
        (damaged(version=2), "version 2; this syno reads up to 1: install a newer one"),
        (damaged(version="1"), "version '1'"),
        (damaged(extra=1), "unknown field `extra`"),
        (damaged(hash=None), "missing required field `hash`"),
        (damaged(hash="0" * 32), "says its hash is 000.*changed or damaged"),
        (damaged(expr=5), r"\$\.expr"),
        (damaged(program="y[i] ="), "cannot be built"),
        (damaged(written={"expr": "y[i] = x[i]", "sizes": {"i": 3}}), "cannot be built|changed"),
    ],
)
def test_damaged_files_are_refused_with_a_sentence(text, message):
    with pytest.raises(FormatError, match=message):
        Operator.from_json(text)


def test_file_errors_name_the_path(tmp_path):
    with pytest.raises(FormatError, match=r"nothing\.json.*No such file"):
        Operator.load(tmp_path / "nothing.json")
    with pytest.raises(FormatError, match="cannot be written"):
        conv().save(tmp_path / ("x" * 300))
    folder = tmp_path / "folder.json"
    folder.mkdir()
    with pytest.raises(FormatError, match=r"folder\.json"):
        Operator.load(folder)


def test_the_schema_is_published():
    text = json.dumps(schema())
    assert "additionalProperties" in text
    assert "pgraph" in text


def test_operators_copy_and_travel_between_processes():
    op = Operator.parse(SYMBOLIC).at(1)
    assert copy.deepcopy(op) is op
    assert pickle.loads(pickle.dumps(op)) == op


def test_operators_show_themselves():
    op = conv()
    assert "y[n,o,h,w] = sum[c,r,s]" in repr(op)
    assert "8,640 FLOPs, 288 parameters" in repr(op)
    assert "<code>y[n,o,h,w]" in op._repr_html_()
    assert op._repr_svg_() is None


@pytest.mark.parametrize(
    "text",
    [
        "y[] = x[] * 2",
        "y[i] = x[] * w[i]",
        "y[] = sum[i] w[i] * x[]",
        "y[] = x[] ** z[]",
        "s[] = exp(x[]); y[i] = s[] + w[i]",
    ],
)
def test_reference_takes_inputs_without_dimensions(text: str) -> None:
    operator = Operator.parse(text, **({"i": 4} if "i" in text.replace("index", "") else {}))
    arrays = [
        np.asarray(0.5 + np.arange(math.prod(operator.shapes[n]))).reshape(operator.shapes[n])
        for n in operator.inputs
    ]
    got = operator.reference(*arrays)
    kernel = operator.compile("float64")
    np.testing.assert_allclose(got, kernel(*arrays), rtol=1e-12)
    assert got.shape == operator.shapes[operator.outputs[0]]
    by_name = {
        n: (float(a) if a.shape == () else a.tolist())
        for n, a in zip(operator.inputs, arrays, strict=True)
    }
    np.testing.assert_array_equal(operator.reference(**by_name), got)
