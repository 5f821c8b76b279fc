"""Trainings as tasks of a Ray cluster: who is asked, what is sent, and how the loss of a machine is told from a crash.

A task is a process of Ray's that starts a worker which can be killed, so that a candidate's crash, limit or memory comes
back as its outcome. What Ray itself reports (a dead worker of Ray's, a dead node, a lost object) says nothing of
the candidate: the call is repeated by the session. Ray repeats nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError, told
from syno.executors.network import check_address
from syno.executors.ray_bench import RayBench
from syno.executors.ship import digest, packed, unpacked
from syno.executors.target import difference, own_traits, traits
from syno.session.config import Component
from syno.session.elsewhere import Context, Heard, RemoteExecutor, decoded
from syno.session.executors import Call, Outcome
from syno.session.memory import show_bytes
from syno.session.nodes import Facts, class_difference, facts, why_unfit
from syno.session.remote import Answer, Word, end_workers, examine, run_job

#: Label of nodes that latencies are measured on: ``ray start --labels syno-target=true``.
TARGET = "syno-target"

_ATTEMPTS, _PAUSE_S = 4, 2.0  # to connect, and between two of them
_LOOK_S = 2.0  # between two looks at the nodes
_WAIT_S = 600.0  # for a node to come where there is none left

#: Ray's own label of every node.
_NODE = "ray.io/node-id"


class Mailbox:
    """An actor beside the driver: what running tasks say, until it is taken."""

    def __init__(self) -> None:
        self._words: list[tuple[int, str, bytes]] = []

    def put(self, number: int, node: str, word: bytes) -> None:
        self._words.append((number, node, word))

    def take(self) -> list[tuple[int, str, bytes]]:
        words, self._words = self._words, []
        return words


def _folder(shipped: tuple[str, list[Any]] | None) -> str:
    if shipped is None:
        return ""
    import ray

    name, references = shipped
    return str(unpacked(name, lambda: bytes(ray.get(references[0]))))


def train_on_node(
    number: int, job: bytes, shipped: tuple[str, list[Any]] | None, mailbox: Any
) -> tuple[str, bytes]:
    """The task: which node it ran on, and the answer."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    try:
        folder = _folder(shipped)
    except OSError as error:
        why = f"it cannot unpack what was shipped: {error.strerror or told(error)}"
        return node, msgspec.msgpack.encode(Answer(state="node", node=node, refused=why))
    return node, run_job(job, folder, lambda word: _say(mailbox, number, node, word))


def _say(mailbox: Any, number: int, node: str, word: bytes) -> None:
    # Nobody waits for a report; a driver that is gone ends the task by itself.
    with contextlib.suppress(Exception):
        mailbox.put.remote(number, node, word)


def examine_node(job: bytes, shipped: tuple[str, list[Any]] | None) -> bytes:
    """The task that asks a node whether it can do the session's work."""
    try:
        return examine(job, _folder(shipped))
    finally:
        end_workers()  # what they hold is in the way of trainings


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise SessionError(
            f"there is no Ray: {told(error)}", fix='pip install "syno[ray]"', code="R013"
        ) from None
    return ray


class RayExecutor(RemoteExecutor):
    """Runs calls on a Ray cluster; see :func:`syno.executors.ray` for the arguments."""

    kind = "ray"

    def __init__(
        self,
        address: str = "",
        *,
        gpus: float = 0.0,
        memory_bytes: int | None = None,
        ship: Sequence[str | Path] = (),
        trust_network: bool = False,
        wait_s: float = _WAIT_S,
    ) -> None:
        super().__init__(memory_bytes)
        self._address = address
        self._gpus = gpus
        self._wait_s = wait_s
        self._own = False
        self._mailbox: Any = None
        self._shipped: tuple[str, list[Any]] | None = None
        self._refs: dict[Any, int] = {}
        self._serial = 0
        self._calls: dict[int, Any] = {}  # references, by what their tasks call themselves
        self._places: dict[Any, str] = {}  # nodes that they run on
        self._names: dict[str, str] = {}  # of nodes, dead ones too
        self._nodes: list[dict[str, Any]] = []
        self._facts: dict[str, Facts] = {}
        self._kept_away: dict[str, str] = {}
        self._check = b""  # what nodes are asked before they train
        self._asked_late: dict[str, Any] = {}  # references, by nodes that came late
        self._looked = -1e9
        self._alone_since: float | None = None
        where = address or os.environ.get("RAY_ADDRESS", "")
        if where not in ("", "auto", "local"):
            check_address(where, trust_network=trust_network)
        self._archive = packed(ship) if ship else b""

    # --- the cluster

    def _initialise(self, ray: Any) -> None:
        """A head under load may fail to start its server for this client in time, and manage the next time."""
        for attempt in range(_ATTEMPTS):
            try:
                ray.init(
                    address=self._address or "auto",
                    log_to_driver=False,
                    namespace="syno",
                    logging_level="ERROR",
                )
                return
            except ConnectionAbortedError:
                if attempt + 1 == _ATTEMPTS:
                    raise
                ray.shutdown()
                time.sleep(_PAUSE_S)

    def _connect(self) -> Any:
        ray = _ray()
        if self._mailbox is not None:
            return ray
        if not ray.is_initialized():
            try:
                self._initialise(ray)
            except (
                Exception,
                SystemExit,
            ) as error:  # whatever Ray raises where it finds no cluster
                raise SessionError(
                    f"no Ray cluster answers{f' at {self._address}' if self._address else ' on this machine'}: {told(error)}",
                    fix="start one (ray start --head), give ray://HOST:PORT, and have the same versions of Ray and "
                    "Python there",
                    code="R021",
                ) from None
            self._own = True
        options: dict[str, Any] = {"num_cpus": 0}
        if not self._address.startswith("ray://"):  # the driver's own node
            own = ray.get_runtime_context().get_node_id()
            options["label_selector"] = {_NODE: own}
        self._mailbox = ray.remote(Mailbox).options(**options).remote()
        try:
            if self._archive:
                self._shipped = (digest(self._archive), [ray.put(self._archive)])
        except Exception as error:  # its object store is full
            raise SessionError(
                f"what is to be shipped ({show_bytes(len(self._archive))}) does not fit into Ray's object store: "
                f"{told(error)}",
                fix="ship less and name data by a path that each node has, or start Ray with more "
                "--object-store-memory",
                code="R023",
            ) from None
        return ray

    def _look(self) -> list[dict[str, Any]]:
        """The nodes that are alive; not oftener than every other second."""
        if time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            self._nodes = [node for node in _ray().nodes() if node["Alive"]]
            self._names |= {node["NodeID"]: _name(node) for node in self._nodes}
            if self._check:
                self._greet()
        return self._nodes

    def _greet(self) -> None:
        """Asks nodes that came after the start what the others were asked before it; until they answer, and where they cannot
        do the work, nothing is sent there."""
        ray = _ray()
        for node in self._nodes:
            id = node["NodeID"]
            if node["Resources"].get("CPU", 0.0) >= 1 and id not in {
                *self._facts,
                *self._kept_away,
            }:
                self._kept_away[id] = "it has not answered yet"
                self._asked_late[id] = self._ask(ray, id, self._check)
        alive = {node["NodeID"] for node in self._nodes}
        for id, ref in list(self._asked_late.items()):
            if id in alive and not ray.wait([ref], timeout=0)[0]:
                continue
            del self._asked_late[id], self._kept_away[id]
            if id not in alive:
                continue
            try:
                found = self._facts_of(ray, id, ref)
            except SessionError as error:
                why = str(error.args[0])
            else:
                if found is None:  # it is gone again
                    continue
                why = why_unfit(found, facts())
                if not why and self.numeric and found.numeric != self.numeric:
                    why = class_difference(found.numeric, self.numeric)
            name = self._names[id]
            if why:
                self._kept_away[id] = why
                self._refuse(name, why.removeprefix(name).lstrip(": "))
            else:
                self._say(f"{name} has come and trains, too", "info")

    def _ask(self, ray: Any, node: str, job: bytes) -> Any:
        options = {"num_cpus": 0, "max_retries": 0, "label_selector": {_NODE: node}}
        return ray.remote(examine_node).options(**options).remote(job, self._shipped)

    def _facts_of(self, ray: Any, node: str, ref: Any) -> Facts | None:
        """What a node answered; ``None`` where it is gone. Raises SessionError for one that cannot begin."""
        name = self._names[node]
        try:
            answer = msgspec.msgpack.decode(ray.get(ref), type=Facts)
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            raise SessionError(
                f"{name} cannot begin: {told(cause)}",
                fix="install the same syno there, where Ray's Python finds it",
                code="R019",
            ) from None
        except ray.exceptions.RayError:
            return None
        self._facts[node] = answer = msgspec.structs.replace(answer, host=name)
        return answer

    def _targets(self) -> list[str]:
        wanted = self.target or "true"
        return [n["NodeID"] for n in self._look() if n.get("Labels", {}).get(TARGET) == wanted]

    def _needs(self) -> dict[str, float]:
        needs = {"CPU": float(self._threads)}
        if self._gpus:
            needs["GPU"] = self._gpus
        if self.memory_bytes:
            needs["memory"] = float(self.memory_bytes)
        return needs

    def _usable(self) -> list[dict[str, Any]]:
        """Nodes that trainings may run on: not those that are kept for measurements, unless there are no others."""
        found = [n for n in self._look() if n["NodeID"] not in self._kept_away]
        return [n for n in found if not n.get("Labels", {}).get(TARGET)] or found

    @property
    def count(self) -> int:
        """Trainings that fit on the cluster at the same time."""
        needs = self._needs()
        fit = (
            min(int(node["Resources"].get(name, 0.0) // amount) for name, amount in needs.items())
            for node in self._usable()
        )
        return max(1, sum(fit))

    def prepare(self, context: Context) -> None:
        self._threads = context.config.threads_per_training
        self._connect()
        needs = self._needs()
        if not any(_fits(node, needs) for node in self._look()):
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in needs.items())
            has = "; ".join(
                f"{_name(node)} has "
                + ", ".join(f"{node['Resources'].get(name, 0.0):g} {name}" for name in needs)
                for node in self._look()
            )
            raise SessionError(
                f"no node has what a training needs ({wanted}): {has or 'there is no node'}",
                fix="ask for less (gpus=, memory=, threads), or add a node",
                code="R019",
            )
        super().prepare(context)
        for node, own in self._facts.items():
            if self.numeric and own.numeric != self.numeric:
                self._kept_away[node] = "another class"
        self._check_targets(context)

    def _examine(self, job: bytes) -> list[Facts]:
        ray = _ray()
        nodes = [n["NodeID"] for n in self._look() if n["Resources"].get("CPU", 0.0) >= 1]
        refs = {node: self._ask(ray, node, job) for node in nodes}
        answers = [self._facts_of(ray, node, refs[node]) for node in nodes]
        found = [answer for answer in answers if answer is not None]
        if not found:
            raise SessionError(
                "no node of the Ray cluster answers",
                fix="look at 'ray status', then run again: the session goes on",
                code="R019",
            )
        self._check = job
        return found

    # --- latencies

    def measures(self) -> bool:
        return bool(self._targets())

    def lend(
        self, context: Context, target: str, machine: str, part: Component | None = None
    ) -> str:
        self._connect()
        self.target = target
        if not self._targets():
            raise SessionError(
                f"no node of the Ray cluster has the label {TARGET}={target}",
                fix=f"start Ray there with it: ray start --labels {TARGET}={target}",
                code="R019",
            )
        return super().lend(context, target, machine, part)

    def _check_targets(self, context: Context) -> None:
        """Raises SessionError for a node that is kept for measurements and differs from the session's machine."""
        if context.config.measurer is None:
            return
        given = context.config.predicted_on
        head = own_traits() if given is None else traits(given)
        for node in self._targets():
            ray = _ray()
            task = ray.remote(own_traits).options(
                num_cpus=0, max_retries=0, label_selector={_NODE: node}
            )
            if differs := difference(head, ray.get(task.remote())):
                raise SessionError(
                    f"the node {self._host(node)} is labelled {TARGET}, and differs from the session's machine: {differs}",
                    fix=f"take the label {TARGET} from it, or begin a session there",
                    code="R024",
                )

    def bench(self) -> RayBench:
        """Where schedules are measured: the nodes that are labelled as targets, or all where none is.

        Raises:
            SessionError: there is none, or one differs from this machine.
        """
        ray = self._connect()
        targets = set(self._targets())
        nodes = [n for n in self._look() if n["Resources"].get("CPU", 0.0) >= 1]
        chosen = [n for n in nodes if n["NodeID"] in targets] or nodes
        return RayBench(
            ray,
            {node["NodeID"]: _name(node) for node in chosen},
            {node["NodeID"]: node["Resources"]["CPU"] for node in chosen},
        )

    def _host(self, node: str) -> str:
        if node not in self._names:
            self._looked = -1e9
            self._look()
        return self._names.get(node, node[:6])

    # --- calls

    def _submit(self, number: int, call: Call, job: bytes) -> None:
        ray = self._connect()
        if not self._refs:
            self._calls.clear()  # words of earlier calls that come late
            self._places.clear()
        task = ray.remote(train_on_node)
        options: dict[str, Any] = {"max_retries": 0, "retry_exceptions": False}
        if call.kind == "measure" or self.target:
            # All of the node's cores: nothing trains there meanwhile.
            target = next(iter(self._targets()), "")
            if not target:
                raise SessionError(
                    f"no node with the label {TARGET}={self.target or 'true'} is left to measure",
                    fix="add one, then run again: the session goes on",
                    code="R010",
                )
            cores = next(n["Resources"]["CPU"] for n in self._look() if n["NodeID"] == target)
            options |= {"num_cpus": cores, "label_selector": {_NODE: target}}
        else:
            options["num_cpus"] = self._threads
            options |= {"num_gpus": self._gpus} if self._gpus else {}
            options |= {"memory": self.memory_bytes} if self.memory_bytes else {}
            usable = {node["NodeID"] for node in self._usable()}
            avoided = sorted(n["NodeID"] for n in self._look() if n["NodeID"] not in usable)
            if avoided:
                options["label_selector"] = {_NODE: f"!in({','.join(avoided)})"}
        self._serial += 1
        ref = task.options(**options).remote(self._serial, job, self._shipped, self._mailbox)
        self._refs[ref] = number
        self._calls[self._serial] = ref

    def _poll(self, timeout_s: float) -> list[Heard]:
        ray = _ray()
        end = time.monotonic() + timeout_s
        heard: list[Heard] = []
        while not heard:
            refs = list(self._refs)
            ready: list[Any] = []
            if refs:
                ready, rest = ray.wait(refs, num_returns=1, timeout=0.1)
                if ready and rest:
                    ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
            heard += self._words(ray)
            heard += [Heard(self._refs.pop(ref), self._answer(ray, ref)) for ref in ready]
            heard += self._fallen(ray)
            self._watch()
            if time.monotonic() >= end:
                break
        return heard

    def _words(self, ray: Any) -> list[Heard]:
        try:
            words = ray.get(self._mailbox.take.remote(), timeout=10.0)
        except ray.exceptions.RayError:  # its node is gone: trainings go on without reports
            return []
        found = []
        for serial, node, word in words:
            ref = self._calls.get(serial)
            number = self._refs.get(ref)
            if number is not None:
                self._places[ref] = node
                said = msgspec.msgpack.decode(word, type=Word)
                named = msgspec.structs.replace(said, node=self._host(node))
                found.append(Heard(number, named))
        return found

    def _fallen(self, ray: Any) -> list[Heard]:
        """Calls whose node is dead: Ray itself may wait long for processes that were left there."""
        alive = {node["NodeID"] for node in self._look()}
        found = []
        for ref in [ref for ref in self._refs if self._places.get(ref, "") not in ("", *alive)]:
            node = self._names.get(self._places[ref], "")
            found.append(
                Heard(
                    self._refs.pop(ref),
                    Outcome("node", reason=f"the node {node} is gone", node=node),
                )
            )
            with contextlib.suppress(Exception):  # nobody may be there to hear it
                ray.cancel(ref, force=True)
        return found

    def _answer(self, ray: Any, ref: Any) -> Answer | Outcome:
        errors = ray.exceptions
        try:
            node, answer = ray.get(ref)
        except errors.OutOfMemoryError as error:
            return Outcome("lost", reason=f"Ray ended it, its node had no memory: {told(error)}")
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            return Outcome("node", reason=f"a node could not begin: {told(cause)}")
        except errors.RayError as error:
            return Outcome("node", reason=f"its machine or what it held is gone: {told(error)}")
        found = decoded(answer)
        if isinstance(found, Answer):
            found = msgspec.structs.replace(found, node=self._host(node))
            if found.refused:
                self._kept_away[node] = found.refused
        return found

    def _watch(self) -> None:
        """Raises SessionError where no node can train any more, and none has come for long."""
        needs = self._needs()
        if any(_fits(node, needs) for node in self._usable()):
            self._alone_since = None
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
            self._say("no node is left that could train: waiting for one", "warning")
        if now - self._alone_since > self._wait_s:
            raise SessionError(
                f"no node of the Ray cluster could train for {self._wait_s:g} s",
                fix="look at 'ray status', then run again: the session goes on",
                code="R010",
            )

    def _abandon(self) -> None:
        ray = _ray()
        for ref in self._refs:
            with contextlib.suppress(Exception):  # it may be over, or the cluster gone
                ray.cancel(ref, force=True)
        self._refs.clear()
        self._calls.clear()
        self._places.clear()

    def describe(self) -> dict[str, Any]:
        nodes = []
        for node in self._look():
            known = self._facts.get(node["NodeID"])
            nodes.append(
                {
                    "node": _name(node),
                    "cpus": node["Resources"].get("CPU", 0.0),
                    "gpus": node["Resources"].get("GPU", 0.0),
                    "cpu": known.cpu if known else "",
                    "measures": node.get("Labels", {}).get(TARGET) == "true",
                    "target": node.get("Labels", {}).get(TARGET, "").replace("true", ""),
                    "kept away": self._kept_away.get(node["NodeID"], ""),
                }
            )
        return {**super().describe(), "address": self._address or "auto", "nodes": nodes}

    def close(self) -> None:
        super().close()
        self._check, self._asked_late = b"", {}
        if self._mailbox is None:
            return
        ray = _ray()
        self._abandon()
        with contextlib.suppress(Exception):
            ray.kill(self._mailbox)
        self._mailbox = None
        if self._own:
            ray.shutdown()


def _fits(node: dict[str, Any], needs: dict[str, float]) -> bool:
    return all(node["Resources"].get(name, 0.0) >= amount for name, amount in needs.items())


def _name(node: dict[str, Any]) -> str:
    """What a node is called: its address, and the beginning of its number, for several may be on one machine."""
    return f"{node['NodeManagerAddress']}/{node['NodeID'][:6]}"


__all__ = ["TARGET", "RayExecutor"]
