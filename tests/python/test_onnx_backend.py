"""The ONNX package's own tests of operators: every case agrees or is refused, none is wrong, none crashes.

All cases of single operators run, every third of the others, and three of the package's light models; with ONNX_CASES=all
everything.
"""

from __future__ import annotations

import collections
import io
import os
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from syno import onnx_backend
from syno.errors import ShapeError, UnsupportedOp

ALL = os.environ.get("ONNX_CASES") == "all"
#: So many cases of nodes are computed by programs; more is fine.
LEAST_COMPUTED = 1360


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            case
            for kind in ("node", "simple", "pytorch-converted", "pytorch-operator")
            for case in load_model_tests(kind=kind)
        ]


def data_of(case: Any, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and outputs of each data set."""
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [plain(x) for x in inputs], [plain(y) for y in outputs]
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        sides = []
        for side, infos in (("input", model.graph.input), ("output", model.graph.output)):
            read = []
            for number, info in zip(
                range(len(list(folder.glob(f"{side}_*.pb")))), infos, strict=False
            ):
                kind = info.type.WhichOneof("value")
                content = (folder / f"{side}_{number}.pb").read_bytes()
                read.append(
                    numpy_helper.to_array(onnx.TensorProto.FromString(content))
                    if kind == "tensor_type"
                    else [content]
                )
            sides.append(read)
        yield sides[0], sides[1]


def plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def outcome(case: Any) -> str:
    """`computed` by programs, `folded` while importing, or `refused`.

    Raises:
        AssertionError: a result is wrong.
    """
    model = case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")
    try:
        ready = onnx_backend.prepare(model)
        count = 0
        for inputs, outputs in data_of(case, model):
            results = ready.run(inputs)
            assert len(results) == len(outputs), case.name
            for result, expected in zip(results, outputs, strict=True):
                expected = np.asarray(expected)
                assert (result.dtype, result.shape) == (expected.dtype, expected.shape), case.name
                np.testing.assert_allclose(
                    np.asarray(result, np.float64),
                    np.asarray(expected, np.float64),
                    case.rtol,
                    case.atol,
                    err_msg=case.name,
                )
            given = dict(zip(ready.names, map(np.asarray, inputs), strict=False))
            nodes = ready.imported(given).network.nodes
            count += sum(node.function != "copy" for node in nodes)
        return "computed" if count else "folded"
    except UnsupportedOp:
        return "refused"


def test_cases_of_operators_agree_or_are_refused(cases: list[Any]) -> None:
    counts: collections.Counter[str] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases:
            if case.kind == "node":
                result = outcome(case)
                counts[result] += 1
                refused[case.name] += result == "refused"
    print(dict(counts))
    assert counts["computed"] >= LEAST_COMPUTED, counts


def test_models_of_the_package_agree_or_are_refused(cases: list[Any]) -> None:
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    rest = [case for case in cases if case.kind != "node"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in rest if ALL else rest[::3]:
            counts[case.kind, outcome(case)] += 1
    print(dict(counts))
    assert sum(n for (_, result), n in counts.items() if result == "computed") >= 30, counts


def test_the_package_s_own_runner_passes_or_skips() -> None:
    from onnx.backend.test import BackendTest

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = BackendTest(onnx_backend.SynoBackend, __name__)
        suite = unittest.TestSuite()
        for case in runner.test_cases.values():
            loaded = unittest.defaultTestLoader.loadTestsFromTestCase(case)
            tests = [test for test in loaded if test.id().endswith("_cpu")]
            if "Real" not in case.__name__:
                suite.addTests(tests if ALL else tests[::12])
        result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    assert result.wasSuccessful(), [*result.failures, *result.errors][:3]
    assert len(result.skipped) < result.testsRun / 2


def test_a_case_that_must_not_pass_fails() -> None:
    """The comparison itself: a wrong model is seen."""
    import types

    node = onnx.helper.make_node("Exp", ["x"], ["y"])
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [info("x", 1, [2])], [info("y", 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    x = np.array([0.5, 1], np.float32)
    case = types.SimpleNamespace(
        name="c", model=model, data_sets=[([x], [np.exp(x)])], rtol=1e-3, atol=1e-7, model_dir=None
    )
    assert outcome(case) == "computed"
    case.data_sets = [([x], [np.log(x)])]
    with pytest.raises(AssertionError):
        outcome(case)


def test_single_nodes_and_devices() -> None:
    x = np.array([[1, -2], [3, 4]], np.float32)
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    (y,) = onnx_backend.run_node(node, [x])
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:0")
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[N, 2] x, int64[K] s) => (float[M, L] y) { y = Reshape(x, s) }'
    )
    ready = onnx_backend.prepare(model)
    for shape in ([4, 1], [1, 4], [2, 2]):
        (y,) = ready.run([x, np.array(shape, np.int64)])
        np.testing.assert_array_equal(y, x.reshape(shape))
    with pytest.raises(ShapeError, match="3 inputs"):
        ready.run([x, x, x])
    with pytest.raises(UnsupportedOp, match="no tensor"):
        ready.run([[x], x])
    with pytest.raises(UnsupportedOp, match="CPU"):
        onnx_backend.prepare(model, "CUDA")


LIGHT = ["resnet50", "shufflenet", "squeezenet"]
HEAVIER = ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "vgg19", "zfnet512"]


@pytest.mark.parametrize("name", [*LIGHT, *HEAVIER] if ALL else LIGHT)
def test_light_models_run(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    rng = np.random.default_rng(0)
    ready = onnx_backend.prepare(model)
    shapes = {
        each.name: [d.dim_value for d in each.type.tensor_type.shape.dim]
        for each in model.graph.input
    }
    x = {key: rng.standard_normal(shapes[key]).astype(np.float32) for key in ready.names}
    (y,) = ready.run(x)
    session = runtime.InferenceSession(str(folder / f"light_{name}.onnx"))
    (expected,) = session.run(None, x)
    np.testing.assert_allclose(y, expected, 1e-3, 1e-5 * float(np.abs(expected).max()))
