"""`syno.compile`: an operator to a kernel, a model to a network that runs as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from syno.errors import ArgumentError, ShapeError
from syno.kernels.kernel import Kernel
from syno.operators.operator import Operator
from syno.support.arguments import checked
from syno.support.garbage import new_garbage_only
from syno.support.numbers import MOST_THREADS, whole

if TYPE_CHECKING:
    from torch import nn

    from syno.graph.from_onnx import OnnxModel
    from syno.graph.model import CompiledModel


@overload
def compile(what: Operator, **options: Any) -> Kernel: ...
@overload
def compile(what: nn.Module | OnnxModel, example: Any = None, **options: Any) -> CompiledModel: ...
@checked()
@new_garbage_only()
def compile(what: Any, example: Any = None, **options: Any) -> Any:
    """Compiles an operator, or a whole model, for this CPU, and checks the result before anyone can use it.

    Args:
        what: an `Operator` (then as `Operator.compile`: `dtype`, `threads`, `schedule`, `derive`, `cache`), a
            `torch.nn.Module`, or what `syno.load_onnx` gives.
        example: of a module: what it is called with: a tensor, a tuple of arguments or a dictionary of named ones. The
            compiled model is for these shapes, in inference.
        options: of models: `threads` (1); `derive` (False): use equal programs found by `syno.derive` where they are
            faster, each within `max_rel_err` (1e-5) of its output's largest value, searched for `seconds` (30) in all;
            `fuse` (True); `verify` (True): compare with float64 on the example; `cache` (True); `layouts` of the tensors
            between kernels: "row-major" (the default), "channels-last", "blocked" (channels by vectors), "auto" (for
            each tensor what makes the least predicted time, conversions counted), "measured" (the fastest of these).
            Of modules and operators: `dynamic`, sizes that calls bring along, and `background` (False): for an operator
            `{"n": (1, 512)}` as `Operator.compile`, for a module `{"ids": {1: ("n", 24, 512)}}`, by argument and
            dimension, for what `syno.load_onnx` gives `{"batch": (1, 64)}`, by the names of its open dimensions.
    Returns:
        A `Kernel`, a `CompiledModel` that is called as the module is, or a `CompiledNetwork`; with `dynamic` a
        `DynamicKernel` or a `DynamicModel`.
    Raises:
        ArgumentError: something else, no example, or an option that there is not.
        CannotImport: the module is no graph of tensors that `torch.export` can record.
        KernelError: what was compiled computes something else.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
        >>> fast = compile(model, torch.ones(2, 8))
        >>> tuple(fast(torch.ones(2, 8)).shape)
        (2, 4)
    """
    if isinstance(what, Operator):
        if example is not None:
            raise ArgumentError(
                "[compile] an operator is compiled for its own shapes", fix="leave the example out"
            )
        return what.compile(**options)
    dynamic, background = options.pop("dynamic", None), options.pop("background", False)
    settings = _settings(options)
    if _is_onnx(what):
        return what.compile(example, dynamic=dynamic, background=background, **settings)
    if dynamic is not None and not _is_module(what):
        raise ArgumentError(
            f"[compile] dynamic for {type(what).__name__}",
            fix="sizes that calls bring along are for operators, modules and ONNX models",
        )
    if not _is_module(what):
        raise ArgumentError(
            f"[compile] {type(what).__name__} is neither an operator nor a model",
            fix="pass a syno.Operator, a torch.nn.Module with an example, or what syno.load_onnx gives",
        )
    if example is None:
        raise ArgumentError(
            "[compile] a model is compiled for the shapes of an example",
            fix="pass one: syno.compile(model, torch.zeros(1, 3, 224, 224))",
        )
    if dynamic is not None:
        from syno.graph.dynamic_model import compile_dynamic_model

        return compile_dynamic_model(what, example, dynamic, settings, background=bool(background))
    from syno.graph.model import compile_model

    return compile_model(what, example, settings)


def _is_onnx(what: Any) -> bool:
    import sys

    kinds = (("syno.graph.from_onnx", "OnnxModel"), ("syno.graph.open_onnx", "OpenOnnxModel"))
    loaded = [(sys.modules[module], name) for module, name in kinds if module in sys.modules]
    return any(isinstance(what, getattr(module, name)) for module, name in loaded)


def _is_module(what: Any) -> bool:
    import sys

    torch = sys.modules.get("torch")  # whoever has a module has loaded it
    return torch is not None and isinstance(what, torch.nn.Module)


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import fields

    from syno.errors import unknown_name
    from syno.graph.compile import Compiling
    from syno.graph.layout_names import LAYOUTS

    known = {field.name: type(field.default) for field in fields(Compiling)}
    for name, value in options.items():
        if name not in known:
            raise unknown_name("option", name, known)
        wanted = known[name]
        if name == "layouts" and value not in LAYOUTS:
            raise unknown_name("layouts", value, LAYOUTS)
        if wanted is int:
            whole("compile", name, value, 1, MOST_THREADS)
        elif wanted is bool and not isinstance(value, bool):
            raise ArgumentError(f"[compile] {name}={value!r}", fix=f"{name} is True or False")
        elif wanted is float:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ArgumentError(f"[compile] {name}={value!r}", fix=f"{name} is a number")
            if not 0 <= value < float("inf"):
                raise ShapeError(f"[compile] {name}={value!r} must be at least 0")
    return dict(options)
