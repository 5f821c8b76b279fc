"""Products with a weight that a run of a model computes outside its layers: by functions such as `torch.matmul`.

A dispatch mode sees every tensor operation below autograd. What is computed of weights alone (transposed,
reshaped, normalised) is followed, so that `F.linear(x, w / w.norm())` is found, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: What PyTorch computes products and sums of them with: (words of the operation's name, kind for people).
_PRODUCTS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"attention", "encoder"}), "attention"),
    (frozenset({"rnn", "lstm", "gru"}), "recurrent"),
    (frozenset({"convolution", "conv"}), "convolution"),
    (frozenset({"trilinear", "bilinear"}), "bilinear"),
    (
        frozenset(
            {"mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear"}
        ),
        "matmul",
    ),
)


def kind_of(operation: str) -> str | None:
    """The kind of product that an operation such as `aten::addmm` computes; None: another operation."""
    words = set(operation.rpartition("::")[2].split(".")[0].split("_"))
    return next((kind for names, kind in _PRODUCTS if words & names), None)


@dataclass
class Product:
    """One weight in products outside of layers."""

    weight: str
    """The parameter's name in the model."""
    kind: str
    operation: str
    """As PyTorch calls it."""
    calls: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(default_factory=dict)
    """How often, by the shapes of what it is multiplied with and of the result."""
    seconds: float = 0.0


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects `found` while it is entered.

    Args:
        model: whose parameters are weights.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, Product] = {}
        self.inside = 0
        """Greater than 0 while a layer computes that is listed itself."""
        self._weights: dict[int, str] = {}
        # Alive as long as this, so that no other tensor gets their memory.
        self._held: list[Tensor] = []
        for name, parameter in model.named_parameters():
            self._mark(parameter, name)

    def _mark(self, tensor: Tensor, name: str) -> None:
        self._weights.setdefault(_memory(tensor), name)
        self._held.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        seconds = time.perf_counter() - begin
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        names = [self._weights.get(_memory(t)) for t in tensors]
        known = [name for name in names if name is not None]
        if not known:
            return result
        data = [t for t, name in zip(tensors, names, strict=True) if name is None and t.dim()]
        if not data:
            for made in tree_leaves(result):
                if isinstance(made, Tensor):
                    self._mark(made, known[0])
        elif not self.inside:
            kind = kind_of(func._schema.name)
            if kind is not None:
                self._count(known[0], kind, func._schema.name, data[0], result, seconds)
        return result

    def _count(
        self, weight: str, kind: str, operation: str, data: Tensor, result: Any, seconds: float
    ) -> None:
        product = self.found.setdefault(weight, Product(weight, kind, operation))
        made = next((t for t in tree_leaves(result) if isinstance(t, Tensor)), data)
        key = (tuple(data.shape), tuple(made.shape))
        product.calls[key] = product.calls.get(key, 0) + 1
        product.seconds += seconds


def _memory(tensor: Tensor) -> int:
    """Equal for tensors that share memory, while they are alive."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage of their own
        return -id(tensor)
