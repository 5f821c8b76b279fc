"""syno as a backend of the ONNX package: what its own tests run against.

>>> import numpy as np, onnx.parser
>>> text = '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
>>> prepare(onnx.parser.parse_model(text)).run([np.array([-1, 2], np.float32)])
(array([0., 2.], dtype=float32),)
"""

from __future__ import annotations

import unittest
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx.backend.base import Backend, BackendRep

from syno.errors import ShapeError, UnsupportedOp
from syno.graph.building import Network
from syno.graph.from_onnx import OnnxModel, build_onnx
from syno.graph.onnx_file import read_model
from syno.graph.reference import run_reference
from syno.graph.tensors import tensor_of

Array = np.ndarray[Any, Any]


class Refused(UnsupportedOp, unittest.SkipTest):
    """What syno does not compute; runners of tests skip it."""


def refused(error: UnsupportedOp) -> Refused:
    result = Refused(error.what, fix=error.fix, operators=error.operators)
    result.needed = error.needed
    return result


class SynoRep(BackendRep):
    """A model that is ready to run: networks by the shapes of the inputs, and by the values that must be known.

    An input whose values decide about shapes is part of what a network is made for.
    """

    def __init__(self, model: Any, folder: Any, compiled: bool) -> None:
        self._model, self._folder, self._compiled = model, folder, compiled
        initial = {tensor.name for tensor in model.graph.initializer}
        self.names = [each.name for each in model.graph.input if each.name not in initial]
        self._ready: dict[Any, tuple[OnnxModel, Any]] = {}
        self._needed: set[str] = set()

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs in the model's order.

        Args:
            inputs: arrays in the order of the model's inputs, or by name.
        Raises:
            Refused: an operator that syno does not compute.
            ShapeError: another number of inputs.
        """
        if not isinstance(inputs, Mapping):
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(self.names):
                raise ShapeError(f"[onnx] {len(given)} inputs; the model has {len(self.names)}")
            inputs = dict(zip(self.names, given, strict=False))
        for name, array in inputs.items():
            if array is None or isinstance(array, (list, tuple, dict)):
                raise Refused(f"input {name} is no tensor", operators=["Input"])
        feeds = {name: np.asarray(array) for name, array in inputs.items()}
        imported, function = self._prepared(feeds)
        results = function({name: feeds[name] for name in imported.inputs})
        return tuple(results[value.name] for value in imported.outputs.values())

    def covered(self) -> bool:
        """Whether the model can be imported as it stands, or lacks only shapes and values that a run gives."""
        try:
            build_onnx(self._model, self._folder, {}, {})
        except UnsupportedOp as error:
            return bool(error.needed)
        except ShapeError:
            return True
        return True

    def imported(self, inputs: Mapping[str, Array]) -> OnnxModel:
        """The network that inputs of these shapes run on."""
        return self._prepared(inputs)[0]

    def _prepared(self, feeds: Mapping[str, Array]) -> tuple[OnnxModel, Any]:
        # Each attempt may find one more input that decides about shapes.
        for _ in range(len(feeds) + 1):
            constants = {name: feeds[name] for name in self._needed}
            key = (
                tuple((name, array.shape) for name, array in feeds.items()),
                tuple((name, array.tobytes()) for name, array in sorted(constants.items())),
            )
            if key in self._ready:
                return self._ready[key]
            shapes = {name: array.shape for name, array in feeds.items() if name not in constants}
            try:
                imported = build_onnx(self._model, self._folder, shapes, constants)
            except UnsupportedOp as error:
                missing = set(error.needed) - self._needed
                if not missing or not missing <= set(feeds):
                    raise refused(error) from error
                self._needed |= missing
                continue
            if rounds_often(imported.network):
                raise Refused(
                    "sums of sums in half precision, whose roundings differ by more than the standard's tests allow"
                )
            self._ready[key] = (imported, self._function(imported))
            return self._ready[key]
        raise Refused("what this model's inputs decide about could not be found out")

    def _function(self, imported: OnnxModel) -> Any:
        network = imported.network
        compiled = imported.compile() if self._compiled else None

        def function(feeds: Mapping[str, Array]) -> dict[str, Array]:
            if compiled is not None:
                given = [feeds[value.name] for value in network.inputs]
                # A number becomes a vector in ascontiguousarray().
                made = compiled.run([np.ascontiguousarray(a).reshape(a.shape) for a in given])
                return dict(zip([value.name for value in network.outputs], made, strict=True))
            tensors = {
                name: tensor_of(np.ascontiguousarray(a)).reshape(a.shape)
                for name, a in feeds.items()
            }
            return {name: _array(t) for name, t in run_reference(network, tensors).items()}

        return function


def rounds_often(network: Network) -> bool:
    """Whether numbers of 8 or 11 bits are summed more than once: two correct results may differ in the third digit."""
    types = {value.dtype for value in network.values.values()}
    programs = [node for node in network.nodes if node.program is not None]
    if any(network.values[node.outputs[0]].dtype == "bfloat16" for node in programs):
        return True
    texts = [node.program.short_text() for node in programs if node.program is not None]
    return "float16" in types and sum("sum[" in text for text in texts) > 1


def _array(tensor: torch.Tensor) -> Array:
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    result: Array = tensor.contiguous().numpy()
    return result


class SynoBackend(Backend):
    """The standard's interface; devices are the CPU's."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether all operators are covered, as far as the model itself says; what inputs decide shows when it runs."""
        try:
            ready = cls.prepare(model, device)
            return ready.covered()
        except UnsupportedOp:
            return False

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> SynoRep:
        """A model ready to run; shapes that it leaves open are those of the inputs it is run with.

        With `compiled=True` it runs compiled; otherwise node by node in PyTorch, which is ready at once.

        Raises:
            Refused: the device is no CPU; the model is of operators that cannot be converted.
            FormatError: the model contradicts itself.
        """
        if not cls.supports_device(device):
            raise Refused(f"device {device}: syno runs on the CPU")
        checked, folder = read_model(model)
        return SynoRep(checked, folder, bool(kwargs.get("compiled", False)))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One node, of the newest operator set unless `opset_version` says another."""
        arrays = [np.asarray(each) for each in inputs]
        names = [name for name in node.input if name]
        infos = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for name, a in zip(names, arrays, strict=True)
        ]
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        opset = onnx.helper.make_opsetid(node.domain, version)
        if outputs_info is None:
            schema = onnx.defs.get_schema(node.op_type, version, node.domain)
            known = {info.name: info.type for info in infos}
            types = onnx.shape_inference.infer_node_outputs(
                schema, node, known, opset_imports=[opset]
            )
        else:
            types = {
                name: onnx.helper.make_tensor_type_proto(
                    onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
                )
                for name, (dtype, shape) in zip(node.output, outputs_info, strict=False)
            }
        made = [onnx.helper.make_value_info(name, types[name]) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", infos, made)
        model = onnx.helper.make_model(graph, opset_imports=[opset])
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0].upper() == "CPU"


is_compatible = SynoBackend.is_compatible
prepare = SynoBackend.prepare
run_model = SynoBackend.run_model
run_node = SynoBackend.run_node
supports_device = SynoBackend.supports_device
