"""What `torch.export` records of a model, or why it records nothing."""

from __future__ import annotations

import math
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from syno.errors import SynoError
from syno.graph.aten_rows import rows
from syno.graph.functionalised import functionalise

#: Functions of a tensor's shape that give a number.
OF_EXTENTS: dict[str, Any] = {
    "aten.sym_size.int": lambda shape, dim: shape[dim],
    "aten.sym_numel.default": lambda shape: math.prod(shape),
}


class CannotImport(SynoError):
    """Why a model cannot become a network, and what to do, in a sentence."""


def check_devices(model: nn.Module) -> None:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized:
            kind = "quantised" if tensor.is_quantized else f"{tensor.layout} on {tensor.device}"
            raise CannotImport(
                f"[import] {name} is {kind.replace('torch.', '')}; networks are compiled for the CPU: model.to('cpu')"
            )


def exported(
    model: nn.Module, args: tuple[Any, ...], named: dict[str, Any], dynamic_shapes: Any = None
) -> Any:
    """What `torch.export` records of a model in inference, with functions as far apart as there are rows for them.

    Raises:
        CannotImport: it does not take the model, or the model changes its buffers or its inputs.
    """
    from syno.torch.module import calls_registered

    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with calls_registered(), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of what the exporter uses of itself
            program = torch.export.export(
                model, args, named, dynamic_shapes=dynamic_shapes, strict=False
            )
            changed = _changed(program.graph_signature)
            if changed:
                raise CannotImport(
                    f"[import] the model changes {', '.join(changed)} while it runs; return the new values instead"
                )
            functionalise(program.graph_module)
            if not all(_has_row(node) for node in program.graph.nodes):
                table: Any = torch.export.default_decompositions()
                for function in [f for f in table if str(f) in rows()]:
                    table.pop(function)
                program = program.run_decompositions(table)
    except SynoError:
        raise
    except Exception as error:  # whatever a model's own code, and the exporter, raise
        raise CannotImport(
            f"[import] torch.export cannot record {type(model).__name__}: {_first_line(error)}"
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    changed = _changed(program.graph_signature)
    if changed:
        raise CannotImport(
            f"[import] the model changes {', '.join(changed)} while it runs; return the new values instead"
        )
    return program


def _has_row(node: fx.Node) -> bool:
    """Whether nothing is left to take apart in what a node calls: recording a model again takes longer than the rest."""
    if node.op != "call_function" or _is_of_sizes(node):
        return True
    function = node.target
    schema = getattr(function, "_schema", None)
    return schema is not None and not schema.is_mutable and str(function) in rows()


def _is_of_sizes(node: fx.Node) -> bool:
    """Whether a node makes what it gives of sizes and numbers alone: it is computed while the graph is imported."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return False
    return str(node.target) in OF_EXTENTS or not any(
        each.op == "get_attr" or isinstance(each.meta.get("val"), Tensor)
        for each in node.all_input_nodes
    )


def _where(error: BaseException) -> str:
    """The innermost line of a model's code, or of a layer's, that led to an error."""
    own = Path(torch.__file__).parent
    layers = own / "nn" / "modules"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if own not in (path := Path(frame.filename)).parents
        or (layers in path.parents and path.name != "module.py")
    ]
    last = frames[-1]
    return f"{last.name} ({Path(last.filename).name}:{last.lineno}): {last.line}"


def _changed(signature: Any) -> list[str]:
    buffers = list(signature.buffers_to_mutate.values())
    inputs = list(getattr(signature, "user_inputs_to_mutate", {}).values())
    parameters = list((getattr(signature, "parameters_to_mutate", None) or {}).values())
    return (
        [f"its buffer {b}" for b in buffers]
        + [f"its input {i}" for i in inputs]
        + [f"its parameter {p}" for p in parameters]
    )


def _first_line(error: BaseException) -> str:
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if isinstance(error, GuardOnDataDependentSymNode):
        return (
            "what it does next depends on the values of tensors, in "
            + _where(error)
            + "; networks have no such control "
            "flow: compute both and choose with torch.where, or pass what is asked there as a number"
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[0][:300]}"
