"""An operator as an `nn.Module`, alone or in the place of a layer."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from syno.errors import ShapeError
from syno.operators.operator import Operator
from syno.torch.aten import own_names
from syno.torch.initialize import initialize
from syno.torch.layers import Fit, Layer, output_shape, tracing
from syno.torch.native import shapes_of
from syno.torch.ops import as_function, owners
from syno.torch.packed import PackedWeights, plain_call

if TYPE_CHECKING:
    from typing_extensions import Self

_transformed = torch._C._are_functorch_transforms_active

_numbers: Iterator[int] = itertools.count()

_keeps_calls = [False]
_all_registered = [False]


@contextlib.contextmanager
def calls_registered() -> Iterator[None]:
    """Every module on the CPU calls its registered operator in this block, also one that computes by emitted functions:
    who records it wants the program, and makes kernels of its own."""
    before, _all_registered[0] = _all_registered[0], True
    try:
        yield
    finally:
        _all_registered[0] = before


@contextlib.contextmanager
def calls_kept() -> Iterator[None]:
    """PyTorch's exporter to ONNX sees calls of registered operators in this block: who exports translates them."""
    before, _keeps_calls[0] = _keeps_calls[0], True
    try:
        yield
    finally:
        _keeps_calls[0] = before


def _for_others() -> bool:
    """Whether this call is recorded for a runtime that knows no registered operators of this process."""
    if tracing():  # TorchScript, or the exporter to ONNX that traces
        return True
    if not torch.compiler.is_exporting() or _keeps_calls[0]:
        return False
    return torch.onnx.is_in_onnx_export()


#: Attributes that a copy does not take over, and what it has instead.
_FRESH: dict[str, Callable[[], Any]] = {
    "_fits": dict,
    "_packs": lambda: None,
    "_owner": lambda: f"{next(_numbers)}",
}


class Op(nn.Module):
    """Runs an operator on native kernels, forward and backward.

    As a layer's replacement it takes the layer's input at any batch and image size, has its
    parameters named like the layer's (`weight`, further ones `weight_2`, ...; `bias`), and returns
    the layer's output shape. Alone, parameters are named as in the formula, with a `_` behind a name that every
    module has, such as `half`.

    Args:
        operator: at the valuation whose weight shapes the module gets; one output.
        layer: the layer it stands for.
        bias: whether to add one per output channel; default as the layer had it.
        variance: of an output element for inputs of variance 1, to initialise the weights by.
        native: False computes by the emitted PyTorch functions instead of kernels. So does what
            `torch.jit.trace` and `torch.onnx.export` record, at the shapes of their example: their runtimes know no
            kernels (`syno.export` keeps them).
        prepack: whether calls in evaluation mode that need no gradient pack the weights once, where a
            kernel gains by it. A change of the weights is noticed, unless it is written past autograd
            (through `weight.data` or a NumPy view): call `train()` and `eval()` after such. Graphs that
            `torch.compile` makes of the module share what it packs.
        dtype: of the parameters; default torch's.
        device: that the parameters lie on; default torch's. Kernels serve the CPU, elsewhere the emitted functions compute.
    Raises:
        ShapeError: the operator is symbolic, or is to replace a layer and has two data inputs.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        layer: Layer | None = None,
        bias: bool | None = None,
        variance: float | None = None,
        native: bool = True,
        prepack: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.operator = operator._one_valuation("the shapes of parameters")
        self.layer = layer
        self.native = native
        self.prepack = prepack
        self._packs: PackedWeights | None = None
        self._owner = _FRESH["_owner"]()
        owners[self._owner] = self
        self.why = ""
        """Why it runs as it does, where that was chosen by measuring."""
        if layer is not None and len(self.operator.data) != 1:
            raise ShapeError(
                f"[torch] {self.operator.expr} takes {len(self.operator.data)} data inputs; "
                f"a {layer.kind} layer has one"
            )
        self._names = self._parameter_names()
        self._data = tuple(self.operator.data)
        self._places = [
            self._data.index(name) if name in self._data else self._names[name]
            for name in self.operator.inputs
        ]
        """Of the operator's inputs: which of the data, or which parameter."""
        # Registered here, not in the first call: that one may be traced by `torch.compile`.
        self.function = as_function(self.operator)
        """The registered PyTorch operator that computes."""
        self._fits: dict[torch.Size, Fit] = {}
        shapes = self.operator.shapes
        for weight, name in self._names.items():
            values = torch.empty(shapes[weight], dtype=dtype, device=device)
            self.register_parameter(name, nn.Parameter(values))
        channels = layer.out_channels if layer else 0
        wanted = layer.bias if bias is None and layer else bool(bias)
        if wanted and not layer:
            raise ShapeError("[torch] a bias needs the layer that says where the channels are")
        empty = torch.zeros(channels, dtype=dtype, device=device)
        self.bias = nn.Parameter(empty) if wanted else None
        self.reset_parameters(variance)

    def reset_parameters(self, variance: float | None = None) -> None:
        """New random weights by the fan-in of the operator's terms, drawn from torch's generator; the bias becomes zero.

        Args:
            variance: wanted of an output element for inputs of variance 1; default what PyTorch's own layers have, a third.
        """
        weights = {weight: getattr(self, name).data for weight, name in self._names.items()}
        initialize(self.operator, weights, variance)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _parameter_names(self) -> dict[str, str]:
        weights = self.operator.weights
        if self.layer is None:
            # What is set below, too: a weight may be called anything.
            later = {"bias", "function", "_data", "_fits", "_names", "_places"}
            return own_names(weights, later | set(dir(self)))
        return {name: f"weight_{i + 1}" if i else "weight" for i, name in enumerate(weights)}

    def forward(self, *data: Tensor) -> Tensor:
        """The operator of the data inputs; parameters are the module's own.

        Args:
            data: a tensor for each of `operator.data`, in order; in a layer's place the layer's one input, at any batch and
                image size. Under autocast it may be narrower than the parameters.
        Raises:
            ShapeError: there are more or fewer tensors, or the channels are not the layer's.
        """
        fit = None
        if self.layer is not None:
            fit = self._fit(data[0])
            data = (fit.enter(data[0]),)
        y = self._with_packed_weights(data)
        if y is None:
            y = self._with_weights(data)
        if self.bias is not None:
            assert fit is not None
            bias = self.bias.to(y.dtype)
            if not fit.channels_last:
                bias = bias.view(-1, *[1] * len(fit.spatial))
            y = y.add_(bias) if self._is_ours(y) else y + bias
        return y if fit is None else fit.leave(y)

    def _with_weights(self, data: Sequence[Tensor]) -> Tensor:
        if len(data) != len(self._data):
            raise ShapeError(
                f"[torch] {len(data)} tensors for the data inputs {', '.join(self._data)}"
            )
        first = data[0]
        dtype, tensors = first.dtype, []
        for place in self._places:
            if isinstance(place, int):
                tensors.append(data[place])
                continue
            parameter = self._weight(place)
            # Under autocast the data may be narrower than the parameters.
            tensors.append(parameter if parameter.dtype == dtype else parameter.to(dtype))
        by_kernel = self._by_kernel(first)
        return self.function(*tensors) if by_kernel else self.function.emitted(tensors)

    def _is_ours(self, y: Tensor) -> bool:
        # What a kernel returns is nobody else's; what PyTorch's functions return may be the input. A transform
        # may have a bias for each of many samples where the result is the same for all.
        plain = not torch.compiler.is_compiling() and not _transformed()
        return plain and self._by_kernel(y)

    def _by_kernel(self, x: Tensor) -> bool:
        # Elsewhere than on the CPU there are no kernels, and autograd knows the emitted functions.
        native = self.native or _all_registered[0]
        return native and x.device.type == "cpu" and not _for_others()

    def _weight(self, name: str) -> Tensor:
        # What `getattr` finds for a module takes half a microsecond; a parametrised one is found there only.
        found = self._parameters.get(name)
        return getattr(self, name) if found is None else found

    def _with_packed_weights(self, data: Sequence[Tensor]) -> Tensor | None:
        if not (self.prepack and self.native) or self.training:
            return None
        if torch.compiler.is_compiling():
            return self._with_packed_weights_in_graph(data)
        weights = [self._weight(name) for name in self._names.values()]
        if not weights or not plain_call(data, weights):
            return None
        return self._packed(data, weights)

    def _packed(self, data: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor | None:
        if self._packs is None:
            self._packs = PackedWeights(self.operator)
        return self._packs(data, weights)

    def _with_packed_weights_in_graph(self, data: Sequence[Tensor]) -> Tensor | None:
        if torch.compiler.is_exporting() or len(data) != len(self._data):
            return None  # what is exported runs where this module is not
        tensors = [data[p] if isinstance(p, int) else self._weight(p) for p in self._places]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return None
        if any(t.dtype != data[0].dtype or t.device.type != "cpu" for t in tensors):
            return None
        return self.function.by_owner(tensors, self._owner)

    def packed_result(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """What a compiled graph of this module computes of the operator's inputs, its weights packed; None
        where they are other tensors by now, or no kernel packs them.

        Args:
            tensors: all inputs in the order of `operator.inputs`, data and weights.
        """
        data: list[Tensor] = [tensors[0]] * len(self._data)
        weights = []
        for place, tensor in zip(self._places, tensors, strict=True):
            if isinstance(place, int):
                data[place] = tensor
                continue
            weight = self._weight(place)
            same = weight.data_ptr() == tensor.data_ptr() and weight.stride() == tensor.stride()
            if not same or weight.shape != tensor.shape or weight.is_inference():
                return None
            weights.append(weight)
        return self._packed(data, weights) if weights else None

    @property
    def packed_bytes(self) -> int:
        """Memory that packed weights take at present."""
        return self._packs.bytes if self._packs else 0

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `model.to(memory_format=...)` would bring every tensor of four or five dimensions into the order of
        # images, also weights whose dimensions are other ones; of a single dimension there is one order.
        def flat(t: Tensor) -> Tensor:
            return fn(t.reshape(-1)).view(t.shape) if t.dim() > 1 else fn(t)

        return super()._apply(flat, recurse)  # type: ignore[no-untyped-call,no-any-return]

    def train(self, mode: bool = True) -> Self:
        """As in any module; weights that were packed are forgotten when training begins.

        Args:
            mode: True for training, False for evaluation.
        Returns:
            The module itself.
        """
        if mode:
            self._packs = None  # it would be out of date after the first step
        return super().train(mode)

    def _fit(self, x: Tensor) -> Fit:
        assert self.layer is not None
        if torch.compiler.is_compiling() or tracing():
            return self._new_fit(x)  # what is traced has sizes that stand for others
        try:
            fit = self._fits.get(x.shape)
        except TypeError:  # an extent that is a symbol
            return self._new_fit(x)
        if fit is None:
            fit = self._fits[x.shape] = self._new_fit(x)
        return fit

    def _new_fit(self, x: Tensor) -> Fit:
        assert self.layer is not None
        shape = shapes_of([x])[0] if tracing() else tuple(x.shape)
        _check_channels(self.layer, shape)
        return self.layer.fit(shape, output_shape(self.layer, shape))

    def to_aten(self) -> Op:
        """A copy that computes by plain PyTorch functions, sharing the parameters."""
        twin = Op.__new__(Op)
        nn.Module.__init__(twin)
        twin.__dict__.update(
            {k: v for k, v in self.__dict__.items() if k not in ("_parameters", "_packs")}
        )
        twin._parameters = dict(self._parameters)
        twin._packs = None
        twin._owner = _FRESH["_owner"]()
        owners[twin._owner] = twin
        twin.native = False
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Op:
        import copy

        twin = Op.__new__(Op)
        memo[id(self)] = twin
        nn.Module.__init__(twin)
        for key, value in self.__dict__.items():
            twin.__dict__[key] = _FRESH[key]() if key in _FRESH else copy.deepcopy(value, memo)
        owners[twin._owner] = twin
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, **{key: make() for key, make in _FRESH.items()}}
        del state["function"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.function = as_function(self.operator)
        self._owner = _FRESH["_owner"]()  # numbers of another process mean others here
        owners[self._owner] = self

    def extra_repr(self) -> str:
        """Of its printed form: formula, the layer it stands for, multiply-adds, and why it runs as it does."""
        sizes = f"in place of {self.layer.kind}, " if self.layer else ""
        why = f"; {self.why}" if self.why else ""
        return f"{self.operator.expr}, {sizes}{self.operator.flops:,} FLOPs{why}"


def _check_channels(layer: Layer, shape: Sequence[int]) -> None:
    axis = -1 if layer.kind == "linear" else -1 - len(layer.kernel)
    rank = len(shape)
    allowed = rank >= 1 if layer.kind == "linear" else rank in (-axis, 1 - axis)
    if not allowed or shape[axis] != layer.in_channels:
        raise ShapeError(
            f"[torch] the operator stands for a {layer.kind} of {layer.in_channels} input channels; "
            f"it got an input of shape {tuple(shape)}"
        )
