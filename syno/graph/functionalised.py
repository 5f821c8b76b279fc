"""In-place functions of an exported graph whose old values nobody sees, as the functions that return new ones.

`torch.export` can do so for any graph, by recording it again, which takes longer than all else of an import. What most models
have is `nn.ReLU(inplace=True)` behind a convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

#: Functions made of others in PyTorch, whose declarations do not say whether they return what they were given, as `dropout`
#: does in inference: these never do.
_FRESH = {
    f"aten.{name}"
    for name in (
        "conv1d.default", "conv1d.padding", "conv2d.default", "conv2d.padding", "conv3d.default", "conv3d.padding",
        "conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input", "linear.default", "batch_norm.default",
        "instance_norm.default", "group_norm.default", "layer_norm.default",
    )
}  # fmt: skip


#: (input, p, train)
_DROPOUTS = {
    f"aten.{name}.default"
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
}


def functionalise(module: fx.GraphModule) -> None:
    """Replaces the in-place functions for which that is plain to see; others stay. What dropouts return in inference is what
    they are given, and is that here, too: what is written over the one is written over the other."""
    graph = module.graph
    for node in list(graph.nodes):
        if _returns_its_input(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    for node in graph.nodes:
        function = _functional(node)
        if function is not None:
            node.target = function
    module.recompile()


def _returns_its_input(node: fx.Node) -> bool:
    if node.op != "call_function" or str(node.target) not in _DROPOUTS or len(node.args) != 3:
        return False
    # An output keeps the name that the exporter gave it.
    return node.args[2] is False and all(user.op != "output" for user in node.users)


def _functional(node: fx.Node) -> Any:
    """The function that returns what this one writes over its first argument; None where somebody else could read that."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable or node.kwargs:
        return None
    written = node.args[0] if node.args else None
    if not isinstance(written, fx.Node) or not _is_alone(written):
        return None
    dtypes = {_dtype(each) for each in node.all_input_nodes}
    if (
        dtypes != {_dtype(written)} or None in dtypes
    ):  # what is written keeps its type, a new value has the wider one
        return None
    packet, _, overload = str(node.target).removeprefix("aten.").rpartition(".")
    found = getattr(torch.ops.aten, packet.removesuffix("_"), None)
    function = getattr(found, overload, None) if packet.endswith("_") else None
    if function is None or function._schema.is_mutable:
        return None
    mine = [(each.name, str(each.type)) for each in schema.arguments]
    theirs = [(each.name, str(each.type)) for each in function._schema.arguments]
    return function if mine == theirs else None


def _is_alone(node: fx.Node) -> bool:
    """Whether what a node makes is memory of its own, which one other node alone gets to see."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or len(node.users) != 1:
        return False
    if len(schema.returns) != 1 or schema.returns[0].alias_info is not None:
        return False
    name: Any = node.target
    return str(name) in _FRESH or not torch._C._dispatch_has_kernel_for_dispatch_key(
        name.name(), "CompositeImplicitAutograd"
    )


def _dtype(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None
