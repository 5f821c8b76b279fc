"""Operators: what a user writes as a formula or a search finds as a pGraph, in one value.

>>> op = Operator.parse("y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]", n=1, o=8, c=4, h=16, r=3)
>>> op.shapes["x"], op.flops, op.params
((1, 4, 16), 1536, 96)
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from syno import _core
from syno.errors import ShapeError, SynoError, UnknownName, require_unicode, shown
from syno.operators.expressions import summary
from syno.operators.formula import Source, checked_extent
from syno.support.arguments import checked

if TYPE_CHECKING:
    import numpy as np
    import torch

    from syno.gpu.operators import TritonOperator
    from syno.kernels.dynamic import DynamicKernel
    from syno.kernels.kernel import Kernel
    from syno.kernels.targets import KernelObject
    from syno.machines.model import MachineModel


class Operator:
    """A tensor operator, at one set of sizes or symbolic with several valuations. Immutable.

    `==` is operator equality: the same terms at every valuation, up to the order of each weight's
    elements and, for operators from a search, of unordered channels.

    Made by `parse` from a formula, by `from_program`, `from_pgraph`, `from_json` and `load`.
    """

    def __init__(
        self,
        program: _core.Program,
        *,
        pgraph: _core.PGraph | None = None,
        source: Source | None = None,
        origin: Operator | None = None,
        index: int | None = None,
    ) -> None:
        self._program = program
        self._pgraph = pgraph
        self._source = source
        self._origin = origin
        self._index = index
        self._hash: str | None = None
        self._one_scope: _core.Program | None = None

    # Making one

    @classmethod
    @checked()
    def parse(
        cls,
        expr: str,
        /,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        weights: Sequence[str] | None = None,
        data: Sequence[str] | None = None,
        **sizes: int,
    ) -> Operator:
        """Reads a formula; the language is described below.

        Args:
            expr: `y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]`, or the full form.
            shapes: shapes of inputs by name, where they are not what the indices imply.
            weights: names of the inputs that are parameters; default all but the first one read.
            data: names of the inputs that are not.
            sizes: extents of iterators and values of size variables, by name.
        Raises:
            ParseError: the text is not well formed, or nothing binds a name; a caret shows where.
            ShapeError: sizes are missing, contradict each other, are below 1, or are no whole numbers.
        """
        require_unicode("parse", expr, *sizes, *(shapes or ()), *(weights or ()), *(data or ()))
        given = {
            name: [checked_extent(f"shapes[{name!r}][{d}]", n) for d, n in enumerate(shape)]
            for name, shape in (shapes or {}).items()
        }
        sizes = {name: checked_extent(name, n) for name, n in sizes.items()}
        program = _core.Program.parse(
            expr,
            sizes=sizes,
            shapes=given,
            weights=None if weights is None else list(weights),
            data=None if data is None else list(data),
        )
        source = Source(
            expr,
            tuple(sorted(sizes.items())),
            None if weights is None else tuple(weights),
            None if data is None else tuple(data),
        )
        return cls(program, source=source if program.concrete else None)

    @classmethod
    @checked()
    def from_program(cls, program: _core.Program) -> Operator:
        """The operator that a program computes.

        Args:
            program: any tensor program, symbolic or concrete; it is compiled as it is staged.
        """
        return cls(program)

    @classmethod
    @checked()
    def from_pgraph(cls, pgraph: _core.PGraph, valuation: int | None = None) -> Operator:
        """The operator of a complete pGraph, staged for the least FLOPs.

        Args:
            pgraph: a graph whose data coordinates are the input's, such as a search finds.
            valuation: index of the one wanted; None keeps the operator symbolic.
        Raises:
            ShapeError: there is no valuation of this index.
        """
        operator = cls(pgraph.staged(), pgraph=pgraph)
        return operator if valuation is None else operator.at(valuation)

    @checked()
    def at(self, valuation: int) -> Operator:
        """The concrete operator at one valuation.

        Args:
            valuation: its index in `valuations`, from 0.
        Raises:
            ShapeError: there is no valuation of this index.
        """
        if not 0 <= valuation < self.valuation_count:
            raise ShapeError(
                f"[operator] valuation {valuation} does not exist: there are {self.valuation_count}, "
                "counted from 0"
            )
        if self.concrete:
            return self
        return Operator(
            self._program.at(valuation), pgraph=self._pgraph, origin=self, index=valuation
        )

    @checked()
    def for_shapes(self, shapes: Mapping[str, Sequence[int]] | Sequence[Sequence[int]]) -> Operator:
        """The same formula at other shapes: another batch, image or width.

        Args:
            shapes: by name, of any inputs and outputs; what they leave open stays as it is. A
                sequence gives those of all inputs in order.
        Raises:
            ShapeError: the formula cannot have tensors of these shapes.
        """
        from syno.operators.other_sizes import for_shapes

        return for_shapes(self, shapes)

    @property
    def size_names(self) -> list[str]:
        """Names of sizes that `with_sizes` takes: size variables, or iterators that are whole indices of an input."""
        from syno.operators.other_sizes import size_names

        return size_names(self)

    def with_sizes(self, **sizes: int) -> Operator:
        """The same formula with other extents of some iterators, or other values of size variables.

        Args:
            sizes: whole numbers of at least 1 by name, such as `h=32`; sizes that are not named stay as they are.
        Raises:
            UnknownName: of a size that there is not; the message lists `size_names`.
            ShapeError: the formula cannot have these sizes, or an operator of fixed sizes has none to change.
        """
        from syno.operators.other_sizes import with_sizes

        return with_sizes(self, sizes)

    # Looking at it

    @property
    def program(self) -> _core.Program:
        """The tensor program that is compiled; staged when the operator comes from a pGraph."""
        return self._program

    @property
    def one_scope(self) -> _core.Program | None:
        """The operator as one expression per output; None where there is none (softmax)."""
        if self._one_scope is None:
            try:
                if self._pgraph is None:
                    self._one_scope = self._program.one_scope_form()
                else:
                    whole = self._pgraph.one_scope()
                    self._one_scope = whole if self._index is None else whole.at(self._index)
            except SynoError:
                return None
        return self._one_scope

    @property
    def pgraph(self) -> _core.PGraph | None:
        """The pGraph the operator was found as; None for one written as a formula."""
        return self._pgraph

    @property
    def valuation(self) -> int | None:
        """Which of its origin's valuations a concrete operator has, where it has one."""
        return self._index

    @property
    def symbolic(self) -> Operator:
        """The operator with all its valuations; itself when it has no other."""
        return self._origin or self

    @property
    def concrete(self) -> bool:
        """Whether all sizes are numbers."""
        return bool(self._program.concrete)

    @property
    def valuation_count(self) -> int:
        return int(self._program.valuation_count)

    @property
    def valuations(self) -> list[dict[str, int]]:
        """Values of the size variables, one dictionary each."""
        return list(self._program.valuations)

    @property
    def expr(self) -> str:
        """The formula: one scope where the operator has that form, else scope by scope."""
        return str((self.one_scope or self._program).short_text())

    @property
    def inputs(self) -> list[str]:
        """Names of data and weights, in the order a call takes them."""
        return list(self._program.inputs)

    @property
    def outputs(self) -> list[str]:
        return list(self._program.outputs)

    @property
    def weights(self) -> list[str]:
        """Names of the inputs that are parameters."""
        return [name for name in self.inputs if self._program.role(name) == "weight"]

    @property
    def data(self) -> list[str]:
        """Names of the inputs that are not parameters."""
        return [name for name in self.inputs if self._program.role(name) != "weight"]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Extents of every input and output. Raises ShapeError when symbolic."""
        program = self._one_valuation("its shapes")._program
        return {name: tuple(program.shape(name)) for name in (*self.inputs, *self.outputs)}

    @property
    def flops(self) -> int:
        """Multiply-adds of one call as staged, each counted as one; summed over the valuations."""
        return sum(int(self._program.cost(i).flops) for i in range(self.valuation_count))

    @property
    def params(self) -> int:
        """Elements of the weights; summed over the valuations."""
        return sum(int(self._program.cost(i).params) for i in range(self.valuation_count))

    @property
    def traffic_bytes(self) -> int:
        """Compulsory traffic of one call in float32, bytes; summed over the valuations."""
        return sum(int(self._program.cost(i).bytes) for i in range(self.valuation_count))

    @property
    def canonical_hash(self) -> str:
        """128 bits as hex, the same on every machine; equal exactly for equal operators."""
        if self._hash is None:
            form = self.one_scope
            if form is None:
                self._hash = str(self._program.structural_key())
            else:
                self._hash = str(form.operator_key(self._unordered(form)))
        return self._hash

    def _unordered(self, form: _core.Program) -> list[tuple[str, int]]:
        if self._pgraph is None:
            return []
        signature = self._pgraph.signature
        inputs = [signature["input"], *(further["dims"] for further in signature["further"])]
        # Data come before weights, in the signature's order.
        sides = [(form.outputs[0], signature["output"]), *zip(form.inputs, inputs, strict=False)]
        return [(name, i) for name, dims in sides for i, dim in enumerate(dims) if dim["unordered"]]

    def _one_valuation(self, what: str) -> Operator:
        if self.concrete:
            return self
        if self.valuation_count == 1:
            return self.at(0)
        raise ShapeError(
            f"[operator] {what} depend on the valuation, and there are {self.valuation_count}; "
            "choose one with .at(index)"
        )

    # Using it

    def reference(self, *arrays: Any, **named: Any) -> Any:
        """The operator in float64 by the interpreter: slow, exact in meaning, for checks.

        Args:
            arrays: inputs in the order of `inputs`; `named` gives them by name.
        Returns:
            The output, or a dictionary of them when there are several.
        Raises:
            ShapeError: an input is missing, given twice, unknown or of another shape.
        """
        import numpy as np

        concrete = self._one_valuation("values")
        if len(arrays) > len(self.inputs):
            raise ShapeError(
                f"[operator] {len(arrays)} arrays for {len(self.inputs)} inputs: "
                + ", ".join(self.inputs)
            )
        values = dict(zip(self.inputs, arrays, strict=False))
        for name, value in named.items():
            if name not in self.inputs:
                raise UnknownName(
                    f"[operator] no input is named {name!r}; there are: {', '.join(self.inputs)}"
                )
            if name in values:
                raise ShapeError(f"[operator] input {name} is given twice")
            values[name] = value
        missing = [name for name in self.inputs if name not in values]
        if missing:
            raise ShapeError(f"[operator] no value for {', '.join(missing)}")
        shapes = concrete.shapes
        ready: dict[str, np.ndarray[Any, Any]] = {}
        for name, value in values.items():
            try:
                array = np.asarray(value, dtype=np.float64)
            except (TypeError, ValueError):
                raise ShapeError(
                    f"[operator] {name}={shown(value)} is no array of numbers"
                ) from None
            if array.shape != shapes[name]:
                raise ShapeError(
                    f"[operator] {name} has shape {array.shape}; {self.expr} needs {shapes[name]}"
                )
            ready[name] = array  # not ascontiguousarray, which gives a scalar a dimension
        result = concrete._program.interpret(ready)
        return result[self.outputs[0]] if len(self.outputs) == 1 else result

    def to_torch(self) -> torch.nn.Module:
        """The operator as a module of plain PyTorch functions, differentiable anywhere.

        Weights are parameters named as in the formula; `forward` takes the other inputs.
        """
        from syno.torch.aten import aten_module

        return aten_module(self._one_valuation("parameters"))

    @checked(but=("dtype",))
    def to_triton(
        self, *, dtype: str = "float32", gpu: str = "h200", precision: str = "tf32x3"
    ) -> TritonOperator:
        """The operator as Triton kernels for a GPU, forward and gradients: a module with the parameters of `to_torch`.

        Its `source` is the text, its `verify()` compares forward and gradients with the interpreter: on the GPU, or in
        Triton's interpreter where there is none. On the CPU the module computes by PyTorch functions. Its gradients
        have none themselves. `tune()` chooses tiles by measuring on the GPU.

        Args:
            dtype: of parameters and data, "float32", "float64" or "bfloat16" (which computes in float32).
            gpu: what tiles are chosen for: a name of :func:`syno.gpu.gpu_names`, or the path of a GPU file.
            precision: of float32 products: "tf32x3" lets tensor cores compute one as three products of TF32, whose
                error is that of float32; "ieee" uses none.
        Raises:
            ShapeError: the operator is symbolic with several valuations.
            UnknownName: no such dtype, GPU or precision; the message lists the valid ones.
            KernelError: the operator has a function that Triton lacks.
        """
        from syno.gpu.operators import triton_operator

        return triton_operator(self, dtype=dtype, gpu=gpu, precision=precision)

    @overload
    def compile(
        self, dtype: str = "float32", *, threads: int = 1, dynamic: None = None, **options: Any
    ) -> Kernel: ...
    @overload
    def compile(
        self,
        dtype: str = "float32",
        *,
        threads: int = 1,
        dynamic: Mapping[str, tuple[int, int]],
        **options: Any,
    ) -> DynamicKernel: ...
    @checked(but=("dtype", "threads", "dynamic"))
    def compile(
        self, dtype: str = "float32", *, threads: int = 1, dynamic: Any = None, **options: Any
    ) -> Any:
        """A verified native kernel; see `syno.compile`.

        Args:
            dtype: of inputs and results: `"float32"` or another that kernels have.
            threads: that a call uses where nothing else is said.
            dynamic: sizes that calls bring along, with the least and the greatest value of each: `{"n": (1, 512)}`.
                Their names are those of iterators in the formula, or of size variables. Gives a `DynamicKernel`;
                of the other options it takes `cache`, and `background` (False): run sizes for which no code is there
                from the code for the whole range at once, while better code is made beside.
            options: further ones of `syno.compile`, such as `schedule`, `policy` or `cache`.
        """
        if dynamic is not None:
            from syno.kernels.dynamic import compile_dynamic

            return compile_dynamic(self, dynamic, dtype=dtype, threads=threads, **options)
        from syno.kernels.kernel import compile

        return compile(self, dtype=dtype, threads=threads, **options)

    @checked(but=("dtype",))
    def compile_object(
        self,
        *,
        target: str | None = None,
        cpu: str | None = None,
        dtype: str = "float32",
        machine: MachineModel | None = None,
    ) -> KernelObject:
        """Machine code for another CPU, as an object to link; nothing of it is run here.

        Args:
            target: a triple, "aarch64-linux-gnu" or "x86_64-linux-gnu"; default this machine's.
            cpu: such as "cortex-a76" or "neoverse-v1"; default "generic".
            dtype: "float32", "float64" or "bfloat16"; all arrays of a call have it.
            machine: model that the schedule is constructed from; default the file of public figures that
                syno has of the CPU, else typical rates.
        Raises:
            ShapeError: the operator is symbolic with several valuations.
            UnknownName: no such target, CPU or dtype; the message lists the valid ones.
            KernelError: the machine has other vectors than the CPU, or the loop nest, run on this machine,
                computes something else than the operator.
        """
        from syno.kernels.targets import Target, compile_object

        return compile_object(self, Target.named(target, cpu, machine), dtype=dtype)

    # Files

    def to_json(self, **provenance: Any) -> str:
        """The operator file as text; `provenance` is stored along."""
        from syno.operators.operator_file import dumps

        return dumps(self, provenance)

    @classmethod
    @checked()
    def from_json(cls, text: str | bytes) -> Operator:
        """Reads an operator file's content.

        Args:
            text: JSON as `to_json` writes it.
        Raises:
            FormatError: it is no operator file, of a newer version, or its hash does not fit its content.
        """
        from syno.operators.operator_file import loads

        return loads(text)

    @checked()
    def save(self, path: str | Path, **provenance: Any) -> Path:
        """Writes the operator file; the old one, if any, is replaced in one step.

        Args:
            path: of the file, a JSON text.
            provenance: what is kept beside the operator, for people: where it comes from, what it was worth.
        Returns:
            The path.
        """
        from syno.operators.operator_file import save

        return save(self, Path(path), provenance)

    @classmethod
    @checked()
    def load(cls, path: str | Path) -> Operator:
        """Reads an operator file.

        Args:
            path: of a file that `save` wrote.
        Raises:
            FormatError: it cannot be read, is no operator file, or its hash does not fit its content; says the path.
        """
        from syno.operators.operator_file import load

        return load(Path(path))

    # Value semantics

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operator):
            return NotImplemented
        return self.canonical_hash == other.canonical_hash

    def __hash__(self) -> int:
        return int(self.canonical_hash[:15], 16)

    def __copy__(self) -> Operator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Operator.from_json, (self.to_json(),))

    def __repr__(self) -> str:
        sizes = (
            ", ".join(f"{name}: {list(shape)}" for name, shape in self.shapes.items())
            if self.concrete
            else f"{self.valuation_count} valuations"
        )
        return (
            f"Operator({self.expr}\n"
            f"         {sizes}; {self.flops:,} FLOPs, {self.params:,} parameters)"
        )

    def latex(self) -> str:
        r""":attr:`expr` as LaTeX without dollars, several scopes as lines of ``aligned``; sizes stay symbolic.

        Example: ``\sum_{c, r} x[n, c, h + r - 1] \cdot w[o, c, r]``. Ranges that begin at 0 are left out, and what is
        read outside of a tensor where that is 0; comparisons stand in Iverson's brackets.
        """
        return str(_core.emit_latex(self.one_scope or self._program))

    def _repr_html_(self) -> str:
        from syno.operators.mathematics import mathml

        svg = self._repr_svg_() or ""
        facts = html.escape(repr(self).split("\n", 1)[1].strip().rstrip(")"))
        drawn = f'<div style="overflow-x: auto">{mathml(self.latex())}</div>'
        text = f"<code>{html.escape(self.expr)}</code>"
        return f"<div>{drawn}{text}<br><small>{facts}</small>{svg}</div>"

    def _repr_svg_(self) -> str | None:
        return None if self._pgraph is None else str(self._pgraph.to_svg())


vars(Operator)[
    "parse"
].__func__.__doc__ = f"{inspect.cleandoc(Operator.parse.__doc__ or '')}\n\n{summary()}"
