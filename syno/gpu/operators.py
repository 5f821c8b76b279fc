"""Operators on a GPU: a torch module whose forward and gradients are Triton kernels.

Without a CUDA device the module computes by the emitted PyTorch functions, on the CPU, and says so once;
:meth:`TritonOperator.verify` runs the kernels in Triton's interpreter then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from syno import _core
from syno.errors import KernelError, unknown_name
from syno.gpu.devices import no_cuda
from syno.gpu.models import DEFAULT, gpu_named
from syno.gpu.texts import Array, Interpreter, interpreting, loaded
from syno.gpu.tuning import TritonTuning, TunedKernel, Writer, measured_on, tuned
from syno.kernels.kernel import APART, DTYPES, Verification
from syno.operators.operator import Operator
from syno.support.arguments import checked
from syno.support.bounded import Bounded
from syno.support.notebook import Printed
from syno.support.numbers import MOST_SEED, whole
from syno.torch.aten import EmittedOperator, _emitted

_log = logging.getLogger("syno.gpu")

#: Of each kernel that may be timed.
MOST_CANDIDATES = 1000
#: Combinations of shapes that one module keeps kernels for.
KEPT_SHAPES = 64

#: How float32 products are computed: ``"ieee"``, or as three products of TF32.
PRECISIONS = ("ieee", "tf32x3")
PRECISION = "tf32x3"

Runner = Callable[[str, Sequence[Array]], Sequence[Array]]


@dataclass(frozen=True)
class TritonVerification(Printed):
    """Forward and gradients of an operator's Triton kernels against the float64 interpreter; true when all passed."""

    parts: dict[str, Verification]
    """``"forward"``, and ``"gradients"`` where they were asked for."""
    where: str
    """The GPU, or "Triton's interpreter"."""

    @property
    def passed(self) -> bool:
        return all(part.passed for part in self.parts.values())

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        lines = [f"{name}: {part}" for name, part in self.parts.items()]
        return "\n".join([f"by {self.where}", *lines])

    def to_dict(self) -> dict[str, Any]:
        parts = {name: part.to_dict() for name, part in self.parts.items()}
        return {"where": self.where, "passed": self.passed, "parts": parts}


class Code:
    """The texts of an operator at fixed shapes."""

    def __init__(
        self, operator: Operator, gpu: _core.GpuModel, dtype: str, precision: str = PRECISION
    ) -> None:
        self.operator = operator
        self._writing = _Writing(gpu, dtype, precision)
        self.text = self._writing.text(operator.program)
        self._gradients: Bounded[tuple[str, ...], Gradients] = Bounded(KEPT_SHAPES)

    def forward(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(loaded(self.text.source).run(*tensors))

    def gradients(self, names: tuple[str, ...]) -> Gradients:
        """With respect to some inputs, all at once."""
        found = self._gradients.get(names)
        if found is None:
            made = Gradients(self.operator, names, self._writing)
            found = self._gradients.setdefault(names, made)
        return found

    def tune(
        self, tensors: Sequence[Tensor], cotangents: Sequence[Tensor], candidates: int
    ) -> list[TunedKernel]:
        """Chooses tiles, and how to sum up gradients, by measuring on the device of the tensors."""
        limit = 2 * APART[self._writing.dtype]
        found = tuned(
            self._writing.writer(self.operator.program),
            measured_on(tensors, limit),
            candidates,
            "forward",
        )
        self.text, rows = found
        if cotangents:
            gradients = self.gradients(tuple(self.operator.inputs))
            rows = rows + gradients.tune(cotangents, tensors, candidates, limit)
        return rows


@dataclass(frozen=True)
class _Writing:
    """For which GPU and dtype texts are written."""

    gpu: _core.GpuModel
    dtype: str
    precision: str

    def text(self, program: _core.Program, ranks: Sequence[int] = ()) -> _core.TritonText:
        return _core.emit_triton(
            program, self.gpu, self.dtype, precision=self.precision, ranks=list(ranks)
        )

    def writer(self, program: _core.Program) -> Writer:
        return lambda ranks: self.text(program, ranks)


class Gradients:
    """The gradients with respect to some inputs as one text: of the ways to sum up that there are, the one that is
    predicted to be the fastest."""

    def __init__(self, operator: Operator, names: tuple[str, ...], writing: _Writing) -> None:
        program = operator.program
        self._operator, self._writing = operator, writing
        self._ways = [program.derivatives(list(names), in_two_steps=two) for two in (True, False)]
        texts = [writing.text(way) for way in self._ways]
        best = min(range(len(texts)), key=lambda i: texts[i].seconds)
        self._take(self._ways[best], texts[best])

    def _take(self, program: _core.Program, text: _core.TritonText) -> None:
        operator = self._operator
        self.program, self.text = program, text
        taken = {name: ("input", i) for i, name in enumerate(operator.inputs)}
        cotangents = {
            _cotangent(f"d{output}", self.program.inputs, operator.inputs): ("cotangent", i)
            for i, output in enumerate(operator.outputs)
        }
        self.places = [{**cotangents, **taken}[name] for name in self.program.inputs]
        """Of what the text takes: ``("input", i)`` of the operator, or ``("cotangent", i)``, of its outputs' gradients."""

    def __call__(
        self, cotangents: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        return tuple(loaded(self.text.source).run(*self._given(cotangents, inputs)))

    def _given(self, cotangents: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
        return [(inputs if kind == "input" else cotangents)[i] for kind, i in self.places]

    def tune(
        self,
        cotangents: Sequence[Tensor],
        inputs: Sequence[Tensor],
        candidates: int,
        limit: float,
    ) -> list[TunedKernel]:
        found = []
        for way in self._ways:
            self._take(way, self._writing.text(way))
            measure = measured_on(self._given(cotangents, inputs), limit)
            text, rows = tuned(self._writing.writer(way), measure, candidates, "gradients")
            found.append((sum(row.seconds for row in rows), way, text, rows))
        _, way, text, rows = min(found, key=lambda each: each[0])
        self._take(way, text)
        return rows


def _cotangent(wanted: str, inputs: Sequence[str], taken: Sequence[str]) -> str:
    """What the derivative calls the gradient of an output: a number stands behind where the name is taken."""
    if wanted not in taken:
        return wanted
    rest = [name for name in inputs if name not in taken and name.startswith(wanted)]
    return next((name for name in rest if name[len(wanted) :].isdigit()), wanted)


class _Call(torch.autograd.Function):
    """A call of the kernels that has gradients, by kernels too."""

    @staticmethod
    def forward(ctx: Any, code: Code, *tensors: Tensor) -> Any:
        ctx.code = code
        ctx.save_for_backward(*tensors)
        results = code.forward(tensors)
        return results if len(results) > 1 else results[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        code: Code = ctx.code
        names = code.operator.inputs
        wanted = tuple(n for n, need in zip(names, ctx.needs_input_grad[1:], strict=True) if need)
        found = dict(
            zip(wanted, code.gradients(wanted)(cotangents, ctx.saved_tensors), strict=True)
        )
        return (None, *(found.get(name) for name in names))


class TritonOperator(EmittedOperator):
    """An operator as Triton kernels, with gradients: weights are parameters, as in :meth:`Operator.to_torch`.

    Other shapes than the operator's get kernels of their own when they are first met. Results are row-major. On the CPU
    the emitted PyTorch functions compute; so do other dtypes.
    """

    def __init__(
        self, operator: Operator, gpu: _core.GpuModel, dtype: str, precision: str = PRECISION
    ) -> None:
        emitted = _emitted(str(operator.program.text()))
        super().__init__(emitted, dtype=getattr(torch, dtype))
        self.operator, self.gpu, self._dtype, self._precision = operator, gpu, dtype, precision
        own = dict(zip(operator.weights, self._drawn, strict=True))
        self._inputs = tuple((name in own, own.get(name, name)) for name in operator.inputs)
        self._codes: Bounded[Any, Code] = Bounded(KEPT_SHAPES)
        self._code = Code(operator, gpu, dtype, precision)
        self._said = False

    @property
    def source(self) -> str:
        """The forward kernels: a Python module with ``run(*inputs)`` that needs only torch and Triton."""
        return str(self._code.text.source)

    @property
    def kernels(self) -> list[_core.TritonKernel]:
        """Tiles and predicted times of the forward kernels."""
        return list(self._code.text.kernels)

    @property
    def predicted_seconds(self) -> float:
        """Of one forward call on the GPU that the tiles are for."""
        return float(self._code.text.seconds)

    @checked()
    def gradient_source(self, *names: str) -> str:
        """The kernels of the gradients with respect to some inputs, default all: ``run`` takes the inputs and cotangents
        that it names.

        Raises:
            UnknownName: no such input.
            VerifyError: the operator is not differentiable there.
        """
        for name in names:
            if name not in self.operator.inputs:
                raise unknown_name("input", name, self.operator.inputs)
        wanted = names or tuple(self.operator.inputs)
        return str(self._code.gradients(wanted).text.source)

    def forward(self, *data: Tensor, **named: Tensor) -> Any:
        """Computes the operator from its inputs that are no weights, in order or by name."""
        if named:
            data = (*data, *(named[name] for name in self.operator.data[len(data) :]))
        if any(not self._takes(tensor) for tensor in data):
            return super().forward(*data)
        given = iter(data)
        tensors = [getattr(self, own) if held else next(given) for held, own in self._inputs]
        return self.on_all(*tensors)

    def on_all(self, *tensors: Tensor) -> Any:
        """The kernels on all inputs, weights among them, in the order of the operator's."""
        return _Call.apply(self._for(tensors), *tensors)  # type: ignore[no-untyped-call]

    def _takes(self, tensor: Tensor) -> bool:
        if tensor.is_cuda or interpreting():
            return bool(tensor.dtype == getattr(torch, self._dtype))
        if not self._said:
            self._said = True
            why = no_cuda() or "the tensors are on the CPU"
            _log.warning("no CUDA device: %s; the operator runs as PyTorch functions", why)
        return False

    def _for(self, tensors: Sequence[Tensor]) -> Code:
        shapes = tuple(tuple(t.shape) for t in tensors)
        if shapes == tuple(self.operator.shapes[name] for name in self.operator.inputs):
            return self._code
        found = self._codes.get(shapes)
        if found is None:
            operator = self.operator.for_shapes(shapes)
            found = self._codes.setdefault(
                shapes, Code(operator, self.gpu, self._dtype, self._precision)
            )
        return found

    @checked()
    def verify(
        self, seed: int = 0, *, gradients: bool = True, interpreter: Interpreter | None = None
    ) -> TritonVerification:
        """Compares the kernels with the float64 interpreter, as a native kernel's `verify` does: on the GPU where there is
        one, else in Triton's interpreter, in a process of its own. That takes about a second for ten thousand tiles.

        Args:
            gradients: those with respect to all inputs, too.
            interpreter: where to run them, instead; one serves many operators.
        Raises:
            KernelError: Triton is not installed, or cannot run the text.
            VerifyError: the operator is not differentiable; ask for ``gradients=False``.
        """
        seed = whole("verify", "seed", seed, 0, MOST_SEED)
        if interpreter is not None:
            return self._verified(interpreter.run, "Triton's interpreter", seed, gradients)
        if not no_cuda():
            return self._verified(self._on_gpu, torch.cuda.get_device_name(), seed, gradients)
        with Interpreter() as own:
            return self._verified(own.run, "Triton's interpreter", seed, gradients)

    @checked()
    def tune(self, candidates: int = 8, *, gradients: bool = True, seed: int = 0) -> TritonTuning:
        """Chooses the tiles of each kernel by timing on the GPU those that are predicted to be the fastest, for the
        operator's own shapes. From then on the module runs them. Candidates must compute what the first one does; what
        that is, `verify()` says.

        Args:
            candidates: of each kernel; each takes about a second to compile.
            gradients: those with respect to all inputs, too.
        Raises:
            KernelError: there is no CUDA device, or the kernels do not run on it.
            VerifyError: the operator is not differentiable; ask for ``gradients=False``.
        """
        candidates = whole("tune", "candidates", candidates, 1, MOST_CANDIDATES)
        seed = whole("tune", "seed", seed, 0, MOST_SEED)
        if why := no_cuda():
            raise KernelError(f"[gpu] no CUDA device: {why}; tune where the kernels are to run")
        dtype = getattr(torch, self._dtype)
        generator = torch.Generator().manual_seed(seed)

        def drawn(names: Sequence[str]) -> list[Tensor]:
            shapes = self.operator.shapes
            return [torch.randn(shapes[n], generator=generator).to("cuda", dtype) for n in names]

        inputs = drawn(self.operator.inputs)
        cotangents = drawn(self.operator.outputs) if gradients else []
        rows = self._code.tune(inputs, cotangents, candidates)
        return TritonTuning(tuple(rows), torch.cuda.get_device_name())

    def _on_gpu(self, source: str, arrays: Sequence[Array]) -> list[Array]:
        module = loaded(source)
        tensors = [torch.from_numpy(a).to(device="cuda", dtype=module.DTYPE) for a in arrays]
        return [result.double().cpu().numpy() for result in module.run(*tensors)]

    def _verified(self, run: Runner, where: str, seed: int, gradients: bool) -> TritonVerification:
        texts = {"forward": (self.operator.program, self._code.text)}
        if gradients:
            found = self._code.gradients(tuple(self.operator.inputs))
            texts["gradients"] = (found.program, found.text)
        parts = {}
        for name, (program, text) in texts.items():
            parts[name] = verified(program, text.source, run, dtype=self._dtype, seed=seed)
        return TritonVerification(parts, where)

    def __deepcopy__(self, memo: dict[int, Any]) -> TritonOperator:
        copy = TritonOperator(self.operator, self.gpu, self._dtype, self._precision)
        copy._code = self._code
        copy.load_state_dict(self.state_dict())
        copy.train(self.training)
        first = next(self.parameters(), None)
        return copy if first is None else copy.to(first.device)


def verified(
    program: _core.Program, source: str, run: Runner, *, dtype: str, seed: int = 0
) -> Verification:
    """A text's results against the interpreter of its program.

    Args:
        run: of a text and its inputs, float64 arrays whose values the dtype holds, the outputs.
    """
    nest = _core.apply_schedule(program, _core.default_schedule(program, dtype=dtype))
    outcome = _core.verify_elsewhere(
        program,
        nest,
        lambda arrays: [np.asarray(a, np.float64) for a in run(source, arrays)],
        seed,
    )
    return Verification(
        passed=outcome.passed,
        max_rel_err=outcome.max_rel_err,
        limit=outcome.limit,
        points=outcome.points,
        detail=outcome.detail,
        operator=Operator(program),
        dtype=dtype,
    )


@checked(but=("dtype",))
def triton_operator(
    operator: Operator, *, dtype: str = "float32", gpu: str = DEFAULT, precision: str = PRECISION
) -> TritonOperator:
    """See :meth:`syno.Operator.to_triton`."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    return TritonOperator(operator._one_valuation("kernels"), gpu_named(gpu), dtype, precision)
