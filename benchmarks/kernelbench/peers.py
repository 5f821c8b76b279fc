"""Peers: a form of an operator in PyTorch made ready to run by one system, weights constant and frozen."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kernelbench.limit import new_threads_on
from syno.timing.runtimes import RUNTIMES, Runtime

Call = Callable[[], Any]


class Unavailable(Exception):
    """Expected: a peer that cannot run this form; the text says why."""


class Form(nn.Module):
    """A function of an operator's inputs, the constant ones held."""

    def __init__(
        self, function: Callable[..., Tensor], inputs: Sequence[str], constants: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.function = function
        self.inputs = tuple(inputs)
        self.given = tuple(name for name in inputs if name not in constants)
        for name, value in constants.items():
            self.register_buffer(f"constant_{name}", value)

    def forward(self, *tensors: Tensor) -> Tensor:
        given = dict(zip(self.given, tensors, strict=True))
        values = (given[n] if n in given else getattr(self, f"constant_{n}") for n in self.inputs)
        return self.function(*values)


def graph_of(form: Form, tensors: Sequence[Tensor]) -> nn.Module:
    """The form as one graph of PyTorch's calls for these tensors, index tables and constants held: what
    a model in PyTorch would run, without the Python that recognised it.

    Raises:
        Unavailable: it cannot be traced.
    """
    try:
        module = torch.export.export(form, tuple(tensors), strict=False).module(check_guards=False)
    except Exception as error:  # of many types
        raise Unavailable(f"no graph: {first_line(error)}") from error
    # Plain tensors in and out: the exporter's checks and trees of arguments cost 80 us a call.
    graph = module.graph
    (output,) = graph.output_node().args
    assert isinstance(output, (tuple, list)) and len(output) == 1, "a form has one result"
    graph.output_node().args = (output[0],)
    graph.set_codegen(torch.fx.graph.CodeGen())
    return torch.fx.GraphModule(module, graph)


def result_array(value: Any) -> Any:
    """What a peer's call returned, as a NumPy array; bfloat16 as float32."""
    import numpy as np

    if isinstance(value, Tensor):
        value = value.detach()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if hasattr(value, "to_dlpack") or hasattr(value, "__array__"):
        array = np.asarray(value)
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    if isinstance(value, (list, tuple)):
        return result_array(value[0])
    return np.asarray(next(iter(value.values())))


@dataclass(frozen=True)
class Peer:
    """A row of `PEERS`: `prepare` returns calls by variant ("" for the plain one).

    `needs` are the modules that must all be there; `prepare` gets a form, its tensors and the threads, in the mode
    (`torch.inference_mode` or not) that the calls will be made in.
    """

    name: str
    needs: tuple[str, ...]
    prepare: Callable[[nn.Module, Sequence[Tensor], int], dict[str, Call]]

    @property
    def absent(self) -> str | None:
        """Why the peer cannot run here, or None."""
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if not missing:
            return None
        verb = "is" if len(missing) == 1 else "are"
        return f"{' and '.join(missing)} {verb} not installed: pip install {' '.join(missing)}"


def _eager(form: nn.Module, tensors: Sequence[Tensor], threads: int) -> dict[str, Call]:
    calls: dict[str, Call] = {"": lambda: form.forward(*tensors)}
    if any(t.dim() == 4 for t in tensors):
        last = [_channels_last(t) for t in tensors]
        import copy

        other = copy.deepcopy(form)
        for name, buffer in other.named_buffers():
            other._buffers[name] = _channels_last(buffer)
        calls["channels last"] = lambda: other.forward(*last)
    return calls


def _channels_last(t: Tensor) -> Tensor:
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t


def _compile(form: nn.Module, tensors: Sequence[Tensor], threads: int) -> dict[str, Call]:
    from syno.timing.bench import CompilerUnavailable, _compiled

    try:
        return {"": _compiled(form.forward, tensors, **WHOLE)}
    except CompilerUnavailable as error:
        raise Unavailable(str(error)) from error


#: How forms are compiled: to one graph of these sizes, or not at all.
WHOLE = {"fullgraph": True, "dynamic": False}


def compiled_calls_only() -> Any:
    """A context in which compiled forms run as they were compiled: a call that would compile again, or
    run without having been compiled, raises."""
    return torch.compiler.set_stance("fail_on_recompile")


def keep_compiled() -> None:
    """Lets Inductor keep its code between runs (it says where in TORCHINDUCTOR_CACHE_DIR)."""
    from platformdirs import user_cache_dir
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # Once imported, Inductor itself sets the variable to a temporary directory.
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in (None, default_cache_dir()):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(user_cache_dir("syno"), "inductor")


def _onnx(form: nn.Module, tensors: Sequence[Tensor]) -> bytes:
    loud = logging.getLogger("torch.onnx")
    level = loud.level
    loud.setLevel(logging.ERROR)
    try:
        # The exporter takes no inference tensors.
        with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
            warnings.simplefilter("ignore")
            return _exported(form, tensors)
    except Exception as error:  # whatever the exporter throws is the reason
        raise Unavailable(f"no ONNX export: {first_line(error)}") from error
    finally:
        loud.setLevel(level)


def _exported(form: nn.Module, tensors: Sequence[Tensor]) -> bytes:
    """By the exporter of graphs; what that refuses, by the one of traces."""
    file = io.BytesIO()
    try:
        program = torch.onnx.export(
            form, tuple(tensors), dynamo=True, verbose=False, external_data=False
        )
        assert program is not None
        program.save(file)
    except Exception as error:
        file = io.BytesIO()
        try:
            torch.onnx.export(form, tuple(tensors), file, dynamo=False)
        except Exception:
            raise error from None
    return file.getvalue()


def first_line(error: BaseException) -> str:
    """Of what an error says, for a report; its type where it says nothing."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:160]


def _in(runtime: Runtime) -> Callable[[nn.Module, Sequence[Tensor], int], dict[str, Call]]:
    def prepare(form: nn.Module, tensors: Sequence[Tensor], threads: int) -> dict[str, Call]:
        model = _onnx(form, tensors)
        try:
            arrays = [tensor.contiguous().numpy() for tensor in tensors]
            run, first = runtime.ready(model, arrays, threads)
            run()
        except Exception as error:  # of the library's own, without a common type
            raise Unavailable(f"{runtime.title}: {first_line(error)}") from error

        def call() -> Any:
            return run()

        call.result = first  # type: ignore[attr-defined]
        return {"": call}

    return prepare


def _xla(form: nn.Module, tensors: Sequence[Tensor], threads: int) -> dict[str, Call]:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with new_threads_on(threads):  # it has as many as there are cores when its client begins
        from kernelbench.xla import compile_form, start

        start()

    return {"": compile_form(form, tensors)}


PEERS = {
    peer.name: peer
    for peer in (
        Peer("eager", ("torch",), _eager),
        Peer("compile", ("torch",), _compile),
        *(Peer(each.name, each.needs, _in(each)) for each in RUNTIMES),
        Peer("xla", ("jax",), _xla),
    )
}
