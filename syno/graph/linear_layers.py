"""Linear layers of any rank, where AOTAutograd has left products of matrices of their rows.

`view(x, [b * n, c])`, `addmm`, `view(…, [b, n, o])` is a linear layer of x. Of one size that is all the same; where b and n are
sizes that change, a reshape by them would put one of them into the indices of whatever is joined with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

_VIEWS = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")


def with_linear_layers(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with such rows made linear layers; the same one where there are none."""
    made: fx.GraphModule = copy.copy(module)
    made.graph = copy.deepcopy(module.graph)
    changed = [_replaced(made.graph, node) for node in list(made.graph.nodes)]
    if not any(changed):
        return module
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


def _replaced(graph: fx.Graph, node: fx.Node) -> bool:
    if str(node.target) == "aten.addmm.default" and not node.kwargs:
        bias, rows, turned = node.args
    elif str(node.target) == "aten.mm.default":
        bias, (rows, turned) = None, node.args
    else:
        return False
    x, weight = _of(rows, _is_view), _of(turned, _is_turn)
    if x is None or weight is None or (bias is not None and _rank(bias) != 1):
        return False
    leading, last = _shape(x)[:-1], _shape(x)[-1]
    if len(leading) < 2 or _shape(rows)[1] != last:
        return False
    wanted = [*leading, _shape(node)[1]]
    users = list(node.users)
    if not users or any(not _is_view(user) or _shape(user) != wanted for user in users):
        return False
    with graph.inserting_after(node):
        layer = graph.call_function(torch.ops.aten.linear.default, (x, weight, bias))
    layer.meta["val"] = users[0].meta["val"]
    for user in users:
        user.replace_all_uses_with(layer)
    return True


def _of(node: Any, kind: Callable[[Any], bool]) -> fx.Node | None:
    """What a view or a transposition is of."""
    if not kind(node) or not isinstance(node.args[0], fx.Node):
        return None
    return node.args[0] if isinstance(node.args[0].meta.get("val"), Tensor) else None


def _is_view(node: Any) -> bool:
    return isinstance(node, fx.Node) and str(node.target) in _VIEWS


def _is_turn(node: Any) -> bool:
    if not isinstance(node, fx.Node):
        return False
    target = str(node.target)
    order: list[Any] = list(node.args[1:])
    if target == "aten.t.default":
        return True
    if target == "aten.permute.default":
        return order == [[1, 0]]
    return target == "aten.transpose.int" and sorted(n % 2 for n in order) == [0, 1]


def _rank(node: Any) -> int:
    return len(_shape(node))


def _shape(node: Any) -> list[Any]:
    """Extents as expressions, which are equal where they are the same at all sizes."""
    return [getattr(getattr(n, "node", None), "expr", n) for n in node.meta["val"].shape]
