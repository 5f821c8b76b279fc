"""Schedules measured on the nodes of a Ray cluster: each alone on its node, and only on nodes that are like this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from syno import _core
from syno.errors import SessionError, told
from syno.executors.target import difference, own_traits
from syno.tuning.benches import as_job, measured_here, records_of
from syno.tuning.records import Record

#: The label by which Ray itself knows a node.
_NODE = "ray.io/node-id"


def measure_on_node(job: bytes, compare: bool) -> bytes:
    """The task."""
    return measured_here(job, compare=compare)


class RayBench:
    """Measures on all of some nodes at the same time, a share of the schedules each.

    Args:
        nodes: numbers and names of the nodes; what a node is (``ray.nodes()``) by its number.
    Raises:
        SessionError: there is none, or one differs from this machine, whose model schedules are drawn from.
    """

    def __init__(self, ray: Any, nodes: dict[str, str], cores: dict[str, float]) -> None:
        self._ray, self._nodes, self._cores = ray, dict(nodes), cores
        if not nodes:
            raise SessionError(
                "no node of the Ray cluster measures schedules",
                fix="add a node with CPUs, or leave the executor out",
                code="R019",
            )
        head = own_traits()
        task = ray.remote(own_traits)
        asked = {node: self._on(task, node, cpus=0).remote() for node in nodes}
        for node, reference in asked.items():
            if differs := difference(head, ray.get(reference)):
                raise SessionError(
                    f"the node {nodes[node]} differs from this machine, for whose model schedules are searched: {differs}",
                    fix="label the nodes that are like this machine (ray start --labels syno-target=true), or tune on a "
                    "machine like them",
                    code="R024",
                )

    @property
    def width(self) -> int:
        """Nodes that measure."""
        return max(1, len(self._nodes))

    def _on(self, task: Any, node: str, cpus: float) -> Any:
        return task.options(num_cpus=cpus, max_retries=0, label_selector={_NODE: node})

    def measure(
        self,
        program: _core.Program,
        schedules: Sequence[_core.Schedule],
        options: _core.MeasureOptions,
    ) -> list[Record]:
        found: dict[int, Record] = {}
        open_ones = list(range(len(schedules)))
        while open_ones:
            nodes = list(self._nodes)
            shares = {node: open_ones[place :: len(nodes)] for place, node in enumerate(nodes)}
            asked = {
                node: self._send(node, program, [schedules[i] for i in share], options)
                for node, share in shares.items()
                if share
            }
            for node, reference in asked.items():
                answer = self._answer(node, reference)
                if answer is not None:
                    found |= dict(zip(shares[node], records_of(answer), strict=True))
            open_ones = [i for i in open_ones if i not in found]
        return [found[i] for i in range(len(schedules))]

    def compare(
        self,
        program: _core.Program,
        one: _core.Schedule,
        other: _core.Schedule,
        options: _core.MeasureOptions,
    ) -> float:
        while True:
            node = next(iter(self._nodes))
            answer = self._answer(node, self._send(node, program, [one, other], options, True))
            if answer is not None:
                return float(msgspec.msgpack.decode(answer))

    def _send(
        self,
        node: str,
        program: _core.Program,
        schedules: Sequence[_core.Schedule],
        options: _core.MeasureOptions,
        compare: bool = False,
    ) -> Any:
        # All of the node's cores: nothing else runs there meanwhile.
        task = self._on(self._ray.remote(measure_on_node), node, self._cores[node])
        return task.remote(as_job(program, schedules, options), compare)

    def _answer(self, node: str, reference: Any) -> bytes | None:
        """None of a node that is gone, which is asked no more."""
        errors = self._ray.exceptions
        try:
            return bytes(self._ray.get(reference))
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            raise SessionError(
                f"{self._nodes[node]} cannot measure: {told(cause)}",
                fix="install the same syno there, where Ray's Python finds it",
                code="R019",
            ) from None
        except errors.RayError as error:
            gone = self._nodes.pop(node)
            if not self._nodes:
                raise SessionError(
                    f"{gone}, the last node that measured, is gone: {told(error)}",
                    fix="look at 'ray status', then run again: what was measured is kept",
                    code="R010",
                ) from None
            return None


__all__ = ["RayBench"]
