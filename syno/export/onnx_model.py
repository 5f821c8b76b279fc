"""ONNX: the model with every operator as a function of standard operations in domain `ai.syno`.

A function runs in any ONNX runtime; one that knows the operator may replace the call by a kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from syno.errors import FormatError
from syno.export.check import Call, as_module, call_of, compare, operators_in
from syno.operators.operator import Operator
from syno.support.inputs import tensors
from syno.torch.module import calls_kept
from syno.torch.ops import OperatorFunction, as_function

DOMAIN = "ai.syno"


def write(
    what: Operator | nn.Module, directory: Path, call: Call | None, dtype: str
) -> tuple[str, float]:
    """Writes `model.onnx` and runs it in ONNX Runtime, if that is installed, else in the reference."""
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise FormatError(
            f'[export] ONNX needs the packages onnx and onnxscript: pip install "syno[onnx]" ({error})'
        ) from error
    if dtype == "bfloat16":
        raise FormatError(
            "[export] runtimes have few ONNX operations in bfloat16; export float32 or float64"
        )
    model = as_module(what, dtype)
    args, named = call_of(what, call, dtype)
    if any(t.dtype == torch.bfloat16 for t in tensors((args, named))):
        raise FormatError(
            "[export] runtimes have few ONNX operations in bfloat16; export model.float() with an example of it"
        )
    was = model.training
    model.eval()
    try:
        exported = convert(model, (args, named))
        path = directory / "model.onnx"
        onnx.checker.check_model(exported, full_check=False)
        onnx.save(exported, path)
        with torch.no_grad():
            expected = model(*args, **named)
    except FormatError:
        raise
    except Exception as error:  # whatever torch's exporter meets in the user's model is the reason
        raise FormatError(
            "[export] torch.onnx.export cannot take this model: "
            f"{(str(error).strip().splitlines() or [type(error).__name__])[0]}. "
            "format='safetensors' needs no graph"
        ) from error
    finally:
        model.train(was)
    runner, got = _run(path, tensors((args, named)))
    return f"run by {runner}", compare("ONNX model", got, expected)


def convert(model: nn.Module, call: Call) -> Any:
    """The `onnx.ModelProto` of a module at an example; operators are functions of standard operations."""
    import onnx

    functions: dict[str, Any] = {}
    table = {}
    for _, module in operators_in(model):
        function = as_function(module.operator)
        overload = getattr(torch.ops.syno, function.name).default
        table[overload] = _call_translation(function, functions)
    with calls_kept():
        program = _export(model, call, table)
    proto = program.model_proto
    for function_proto in functions.values():
        proto.functions.append(function_proto)
    known = {entry.domain for entry in proto.opset_import}
    if functions and DOMAIN not in known:
        proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    return proto


def _export(model: nn.Module, call: Call, table: dict[Any, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.onnx.export(
            model,
            call[0],
            kwargs=call[1] or None,
            dynamo=True,
            verbose=False,
            external_data=False,
            custom_translation_table={torch.ops.aten.diagonal.default: _diagonal, **table},
        )


def _diagonal(value: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """`torch.diagonal` by steps through memory; torch's exporter multiplies with a mask and adds, all that is beside the
    diagonal, too."""
    from onnxscript import opset18 as op

    def numbers(*given: int) -> Any:
        return op.Constant(value_ints=list(given))

    rank = len(value.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    rows, columns = int(value.shape[dim1]), int(value.shape[dim2])
    row, column = max(-offset, 0), max(offset, 0)
    count = max(min(rows - row, columns - column), 0)
    others = [dim for dim in range(rank) if dim not in (dim1, dim2)]
    turned = op.Transpose(value, perm=[*others, dim1, dim2])
    if (rows, columns) != (count, count):
        ends = numbers(row + count, column + count)
        turned = op.Slice(turned, numbers(row, column), ends, numbers(-2, -1))
    flat = op.Reshape(turned, numbers(*[0] * len(others), count * count))
    return op.Slice(flat, numbers(0), numbers(count * count), numbers(-1), numbers(count + 1))


def _call_translation(function: OperatorFunction, functions: dict[str, Any]) -> Any:
    """Turns a call of an operator into a call of its ONNX function, made at these shapes."""
    import onnx
    import onnxscript

    opset = onnxscript.values.Opset(DOMAIN, 1)

    def translate(*values: Any) -> Any:
        shapes = tuple(tuple(int(n) for n in value.shape) for value in values)
        name = f"{function.name}_{'_'.join('x'.join(map(str, shape)) for shape in shapes)}"
        if name not in functions:
            functions[name] = _function_proto(function, name, shapes)
        formal = onnx.defs.OpSchema.FormalParameter
        schema = onnx.defs.OpSchema(
            name,
            DOMAIN,
            1,
            inputs=[formal(argument, "T") for argument in function.inputs],
            outputs=[formal(function.output, "T")],
            type_constraints=[("T", ["tensor(float)", "tensor(double)"], "")],
        )
        return onnxscript.values.Op(opset, name, schema)(*values)

    return translate


class _Emitted(nn.Module):
    """The emitted functions of an operator, weights as inputs."""

    def __init__(self, function: OperatorFunction) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: Tensor) -> Tensor:
        return self._function.emitted(tensors)


def _function_proto(function: OperatorFunction, name: str, shapes: Sequence[Sequence[int]]) -> Any:
    import onnx

    example = tuple(torch.zeros(tuple(shape)) for shape in shapes)
    proto = _export(_Emitted(function).eval(), (example, {}), {}).model_proto
    graph = proto.graph
    constants = [
        onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in graph.initializer
    ]
    used = sorted({node.domain for node in graph.node} - {""})
    if used:
        raise FormatError(f"[export] {function.name} needs ONNX operations of {', '.join(used)}")
    return onnx.helper.make_function(
        DOMAIN,
        name,
        [value.name for value in graph.input],
        [value.name for value in graph.output],
        [*constants, *graph.node],
        [entry for entry in proto.opset_import if entry.domain == ""],
        doc_string=function.operator_for(tuple(map(tuple, shapes))).expr,
    )


def _run(path: Path, example: Sequence[Any]) -> tuple[str, Any]:
    import onnx

    arrays = [value.detach().numpy() for value in example]
    try:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        runner = f"ONNX Runtime {onnxruntime.__version__}"
        return runner, session.run(None, dict(zip(names, arrays, strict=True)))
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(path))
        named = dict(zip(evaluator.input_names, arrays, strict=True))
        return f"the ONNX {onnx.__version__} reference", evaluator.run(None, named)
