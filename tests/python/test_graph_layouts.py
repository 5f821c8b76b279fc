"""Edges of networks in other layouts, from Python: the interpreter's values stay, the text and the errors say how they lie."""

from __future__ import annotations

import numpy as np
import pytest

from syno import _core
from syno.errors import ParseError, ScheduleError, ShapeError, UnknownName
from syno.kernels.prepack import prepacked
from syno.operators.operator import Operator

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


def chain() -> _core.Graph:
    """Two convolutions with an activation between them."""
    graph = _core.Graph("chain")
    graph.add_input("x", [1, 16, 6, 6])
    graph.add_weight("k1", [32, 16, 3, 3])
    graph.add_weight("k2", [16, 32, 3, 3])
    first = _core.Program.parse(CONV, shapes={"x": [1, 16, 6, 6], "k": [32, 16, 3, 3]})
    second = _core.Program.parse(CONV, shapes={"x": [1, 32, 6, 6], "k": [16, 32, 3, 3]})
    relu = _core.Program.parse("y[n,c,h,w] = relu(x[n,c,h,w])", shapes={"x": [1, 32, 6, 6]})
    graph.add_program("conv1", first, ["x", "k1"], ["t1"])
    graph.add_program("relu", relu, ["t1"], ["t2"])
    graph.add_program("conv2", second, ["t2", "k2"], ["y"])
    graph.set_outputs(["y"])
    return graph


BLOCKED = "split(1, 2, 16) reorder(0, 1, 3, 4, 2)"


def values(graph: _core.Graph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        name: random.integers(-8, 8, graph.tensor(name)[0]) / 4
        for name in (*graph.inputs, *graph.weights)
    }


def test_layouts_of_edges_are_said_and_change_no_value() -> None:
    graph = chain()
    made = graph.lay_out({"t1": BLOCKED, "t2": BLOCKED})
    assert made.layout("t1") == (BLOCKED, [1, 32, 6, 6])
    assert made.layout("x") == ("", [1, 16, 6, 6])
    assert made.tensor("t2")[0] == [1, 2, 6, 6, 16]
    assert [node.name for node in made.nodes] == ["conv1", "relu", "conv2"]
    assert made.is_elementwise("relu") and not made.is_elementwise("conv1")
    assert _core.Graph.parse(made.text()).text() == made.text()
    given = values(graph)
    np.testing.assert_array_equal(made.interpret(given)["y"], graph.interpret(given)["y"])
    back = made.row_major(["t1", "t2"])
    np.testing.assert_array_equal(back.interpret(given)["y"], graph.interpret(given)["y"])
    assert back.layout("t1")[0] == ""


def test_a_reader_may_have_a_copy_that_lies_otherwise() -> None:
    graph, copy = chain().with_copy("t2", ["conv2"])
    made = graph.lay_out({copy: BLOCKED})
    assert made.layout("t2")[0] == "" and made.layout(copy)[0] == BLOCKED
    given = values(graph)
    np.testing.assert_array_equal(made.interpret(given)["y"], chain().interpret(given)["y"])
    with pytest.raises(ScheduleError, match="no program that reads"):
        chain().with_copy("t1", ["conv2"])


def test_kernels_of_laid_out_programs_compute_the_same() -> None:
    program = _core.Program.parse(CONV, shapes={"x": [1, 16, 6, 6], "k": [32, 16, 3, 3]})
    random = np.random.default_rng(1)
    x = random.standard_normal((1, 16, 6, 6)).astype(np.float32)
    k = random.standard_normal((32, 16, 3, 3)).astype(np.float32)
    expected = Operator(program).reference(x, k)
    for to in (
        "reorder(0, 2, 3, 1)",
        "split(1, 2, 8) reorder(0, 1, 3, 4, 2)",
        "pad(2, 1, 1) pad(3, 1, 1)",
    ):
        kernel = prepacked(Operator(_core.laid_out(program, "x", to)), ["k"])
        lay = _core.Graph("lay")
        lay.add_input("x", [1, 16, 6, 6])
        copy = _core.Program.parse("y[a,b,c,d] = x[a,b,c,d]", shapes={"x": [1, 16, 6, 6]})
        lay.add_program("copy", copy, ["x"], ["t"])
        lay.set_outputs([])
        laid = lay.lay_out({"t": to})
        laid_x = _core.laid_out(copy, "y", to)
        assert laid.tensor("t")[0] == laid_x.shape("y")
        given = Operator(laid_x).reference(x).astype(np.float32)
        np.testing.assert_allclose(kernel.pack(k=k)(given), expected, rtol=2e-5, atol=2e-5)


def test_a_bias_is_stored_in_the_rows_of_its_weight() -> None:
    graph = _core.Graph("biased")
    graph.add_input("x", [2, 4])
    graph.add_weight("w", [3, 4])
    graph.add_weight("b", [3])
    product = _core.Program.parse(
        "t[n,o] = sum[c] x[n,c] * w[o,c]; y[n,o] = t[n,o] + b[o]",
        shapes={"x": [2, 4], "w": [3, 4], "b": [3]},
    )
    graph.add_program("linear", product, ["x", "w", "b"], ["y"])
    graph.set_outputs(["y"])
    made = graph.store_at("b", "w", 1)
    assert made.tensor("w.stored")[0] == [3, 5]
    assert made.constant_nodes() == ["store.w"]
    given = values(graph)
    np.testing.assert_array_equal(made.interpret(given)["y"], graph.interpret(given)["y"])
    with pytest.raises(ShapeError, match="cannot be stored behind dimension 0"):
        graph.store_at("b", "w", 0)
    with pytest.raises(ScheduleError, match="no constant"):
        graph.store_at("b", "x", 1)


def test_mistakes_are_sentences() -> None:
    graph = chain()
    with pytest.raises(ScheduleError, match="the product of 3, 8 is not the extent 32"):
        graph.lay_out({"t1": "split(1, 3, 8)"})
    with pytest.raises(UnknownName, match="reorder"):
        graph.lay_out({"t1": "roerder(0, 1, 2, 3)"})
    with pytest.raises(UnknownName, match="t1"):
        graph.lay_out({"t9": BLOCKED})
    with pytest.raises(ParseError, match="column"):
        graph.lay_out({"t1": "split(1, 2"})
    with pytest.raises(ScheduleError, match="row-major already"):
        graph.row_major(["t1"])
    with pytest.raises(UnknownName, match="x"):
        _core.laid_out(graph.nodes[0].program, "z", BLOCKED)
