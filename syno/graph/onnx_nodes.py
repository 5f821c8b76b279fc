"""Nodes of ONNX graphs as they stand: what they read, their attributes, and those that matter for some outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx

from syno.errors import shown
from syno.graph.onnx_file import bad, shown_text


def names_used(graph: Any) -> set[str]:
    """Names that a graph gives, or that nodes in it or in graphs inside it read."""
    names = {output.name for output in graph.output}
    for node in graph.node:
        names |= set(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= names_used(attribute.g)
    return names


def live(nodes: Sequence[Any], wanted: Iterable[str]) -> list[Any]:
    """Nodes that outputs depend on, in their order."""
    needed, kept = set(wanted), []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= {name for name in node.input if name}
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    needed |= names_used(attribute.g)
    return kept[::-1]


def bound(node: Any, attributes: dict[str, Any], there: set[str]) -> Any:
    """A node of a function with its caller's attributes, and without inputs that the caller left out."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            result.attribute.append(attribute)
        elif attribute.ref_attr_name in attributes:
            given = onnx.AttributeProto()
            given.CopyFrom(attributes[attribute.ref_attr_name])
            given.name = attribute.name
            result.attribute.append(given)
    return result


def attributes_of(node: Any) -> dict[str, Any]:
    """Attributes by name; text decoded."""
    result = {}
    for attribute in node.attribute:
        try:
            value = onnx.helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                value = value.decode()
            elif isinstance(value, (list, tuple)):
                value = [v.decode() if isinstance(v, bytes) else v for v in value]
        except (ValueError, UnicodeDecodeError) as error:
            raise bad(
                f"attribute {shown(attribute.name)} of node {shown(node.name)}: {shown_text(error)}"
            ) from error
        result[attribute.name] = value
    return result
