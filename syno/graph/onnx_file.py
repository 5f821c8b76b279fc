"""ONNX files read strictly: what they say of themselves is checked before anything is built."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from syno.errors import FormatError, UnsupportedOp, shown
from syno.graph.building import DTYPES

Array = np.ndarray[Any, Any]

#: Most elements of one tensor, nodes of one model, dimensions of one tensor.
MOST_ELEMENTS = 1 << 31
MOST_NODES = 200_000
MOST_DIMS = 32
#: The domain of standard operators has two names.
STANDARD = ("", "ai.onnx")
#: Oldest operator set that is read as it is; older models are converted to it.
OLDEST = 13


def bad(what: str) -> FormatError:
    """The error for a file that cannot be what it says."""
    return FormatError(f"[onnx] {what}")


def read_model(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[Any, Path | None]:
    """A model and the folder that its data files are in; a model in memory has none.

    Raises:
        FormatError: it is no ONNX model, or contradicts itself.
    """
    folder = None
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
    else:
        try:
            if isinstance(source, bytes):
                content = source
            else:
                folder = Path(source).resolve().parent
                content = Path(source).read_bytes()
            model = onnx.load_model_from_string(content)
        except OSError as error:
            raise bad(f"{shown(str(source))} cannot be read: {error.strerror}") from error
        except Exception as error:  # protobuf has its own
            name = "this" if isinstance(source, bytes) else shown(str(source))
            raise bad(f"{name} is no ONNX model: {shown(str(error), 200)}") from error
    check(model, None if isinstance(source, (bytes, onnx.ModelProto)) else Path(source))
    return model, folder


def check(model: Any, path: Path | None) -> None:
    """What the standard's own checker finds, and what it leaves."""
    if not model.HasField("graph"):
        raise bad("the model has no graph")
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in STANDARD and not 1 <= opset.version <= newest:
            raise bad(f"operator set {opset.version}; known ones are 1 to {newest}")
    count = 0
    for graph in graphs_of(model.graph):
        count += len(graph.node)
        for tensor in graph.initializer:
            check_dims(tensor.name, tensor.dims)
        names = [tensor.name for tensor in graph.initializer]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise bad(f"two initialisers are called {shown(twice)}")
    if count > MOST_NODES:
        raise bad(f"{count} nodes; at most {MOST_NODES} are read")
    told = _with_shapes(model)
    try:
        onnx.checker.check_model(told or (str(path) if path is not None else model))
    except onnx.checker.ValidationError as error:
        raise bad(shown_text(error)) from error
    except (ValueError, RuntimeError, UnicodeDecodeError, OSError) as error:
        raise bad(shown_text(error)) from error


def _with_shapes(model: Any) -> Any:
    """A copy for the standard's checker, which wants to be told the shape of every output, as no run time does; None
    where it is. Values in other files, which it would look for, are left out: `array_of` checks them."""

    def untold(graph: Any) -> list[Any]:
        values = [*graph.output, *(graph.input if graph is not top else ())]
        kinds = [each.type.tensor_type for each in values if each.type.HasField("tensor_type")]
        return [kind for kind in kinds if not kind.HasField("shape")]

    top = model.graph
    if not any(map(untold, graphs_of(top))):
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    top = copy.graph
    for graph in graphs_of(top):
        for kind in untold(graph):
            kind.shape.SetInParent()
        for tensor in graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL:
                del tensor.external_data[:], tensor.dims[:]
                tensor.data_location = TensorProto.DEFAULT
                tensor.dims.append(0)
    return copy


def shown_text(error: Exception) -> str:
    """A checker's message in a line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 400 else text[:400] + " …"


def modern(model: Any) -> Any:
    """The model with an operator set of `OLDEST` or later, by the standard's own converter.

    Raises:
        UnsupportedOp: it cannot be converted.
    """
    version = min((o.version for o in model.opset_import if o.domain in STANDARD), default=OLDEST)
    if version >= OLDEST:
        return model
    try:
        converted = onnx.version_converter.convert_version(model, OLDEST)
        if [each.type for each in converted.graph.input] != [e.type for e in model.graph.input]:
            raise ValueError("its inputs get other shapes")
        if version < 7 and any(node.op_type == "PRelu" for node in model.graph.node):
            raise ValueError(
                "slopes of PRelu were one for each channel then, which it does not convert"
            )
        return converted
    except Exception as error:  # the converter's C++ raises whatever it finds
        raise UnsupportedOp(
            f"operator set {version} could not be converted to {OLDEST}: {shown_text(error)}",
            fix=f"export the model with operator set {OLDEST} or later",
            operators=sorted({node.op_type for node in model.graph.node}),
        ) from error


def graphs_of(graph: Any, depth: int = 0) -> Iterator[Any]:
    """A graph and those inside it."""
    if depth > 20:
        raise bad("graphs are nested more than 20 deep")
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g, depth + 1)
            for each in attribute.graphs:
                yield from graphs_of(each, depth + 1)


def check_dims(name: str, dims: Any) -> None:
    """Raises: FormatError: extents that no tensor has."""
    extents = list(dims)
    if len(extents) > MOST_DIMS or any(extent < 0 for extent in extents):
        raise bad(f"tensor {shown(name)} has shape {shown(extents)}")
    if math.prod(extents) > MOST_ELEMENTS:
        raise bad(
            f"tensor {shown(name)} has shape {shown(extents)}; at most {MOST_ELEMENTS} elements are read"
        )


def type_name(kind: int) -> str | None:
    """The element type's name in graphs; None of one that they have not."""
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    except (KeyError, TypeError, ValueError):
        return None
    if dtype == np.dtype(ml_dtypes.bfloat16):
        return "bfloat16"
    return str(dtype) if str(dtype) in DTYPES else None


def array_of(tensor: Any, folder: Path | None) -> Array:
    """The values of an initialiser or constant.

    Raises:
        FormatError: there are more or fewer than its shape says, or they are not in the model's folder.
    """
    check_dims(tensor.name, tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, folder)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
        raise bad(f"the values of tensor {shown(tensor.name)}: {shown_text(error)}") from error
    if array.shape != tuple(tensor.dims):
        raise bad(
            f"tensor {shown(tensor.name)} of shape {list(tensor.dims)} has {array.size} values"
        )
    return array


def _external(tensor: Any, folder: Path | None) -> Array:
    what = f"tensor {shown(tensor.name)}"
    if folder is None:
        raise bad(f"the values of {what} are in another file: load the model by its path")
    given = {entry.key: entry.value for entry in tensor.external_data}
    location = given.get("location", "")
    path = (folder / location).resolve()
    if not location or os.path.isabs(location) or not path.is_relative_to(folder):
        raise bad(f"the values of {what} are in {shown(location)}, outside the model's folder")
    if not path.is_file():
        raise bad(f"the file {shown(location)} with the values of {what} is not there")
    name = type_name(tensor.data_type)
    if name is None:
        raise bad(f"{what} in a file of its own has an element type that is not read")
    dtype = DTYPES[name]
    try:
        offset = int(given.get("offset", "0"))
        length = int(given.get("length", str(path.stat().st_size - offset)))
    except ValueError as error:
        raise bad(f"the place of {what} in {shown(location)} is no number") from error
    count = math.prod(tensor.dims)
    if length != count * dtype.itemsize or offset < 0 or offset + length > path.stat().st_size:
        raise bad(
            f"{what} of shape {list(tensor.dims)} needs {count * dtype.itemsize} bytes; bytes {offset} to "
            f"{offset + length} of {shown(location)} ({path.stat().st_size} bytes) are given"
        )
    if count == 0:
        return np.zeros(tuple(tensor.dims), dtype)
    return np.memmap(path, dtype, "c", offset, tuple(tensor.dims))
