"""A search on a Ray cluster of several nodes: the candidates of one worker, whatever becomes of workers, nodes and driver."""

from __future__ import annotations

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import session_fakes as fakes
from patience import PATIENCE_S
from test_session import run, start, story
from test_workers import wait_for

from syno import _core, executors
from syno.config import config
from syno.errors import SessionError
from syno.executors import network, ship, target
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.session import Call, Component, Session, nodes
from syno.session.protocols import TrainRequest
from syno.tuning.network import tune_network
from syno.tuning.search import default_options, tune

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by /proc"),
    # Of Ray, at its own end: sockets and processes that it leaves to the system.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
]

_STORE = 80 << 20  # bytes of shared memory a node


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Machines:
    """A head that trains nothing, and three nodes."""

    def __init__(self) -> None:
        self.client_port = free_port()
        self.cluster = cluster_utils.Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": False,
                "object_store_memory": _STORE,
                "ray_client_server_port": self.client_port,
                "_system_config": {
                    "health_check_initial_delay_ms": 0,
                    "health_check_period_ms": 500,
                    "health_check_failure_threshold": 4,
                },
            },
        )
        self.fill()
        ray.init(
            address=self.cluster.address,
            namespace="syno",
            log_to_driver=False,
            logging_level="ERROR",
        )

    def alive(self) -> list[dict[str, Any]]:
        return [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]

    def fill(self) -> None:
        """Three nodes are there; those that were killed are replaced."""
        for node in list(self.cluster.worker_nodes):
            if any(p.process.poll() is not None for p in node.all_processes.get("raylet", [])):
                self.cluster.remove_node(node, allow_graceful=False)
        while len(self.cluster.worker_nodes) < 3:
            self.cluster.add_node(num_cpus=1, object_store_memory=_STORE)

    def close(self) -> None:
        self.fill()
        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    here = str(Path(__file__).parent)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, sys.path)])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Machines()
    yield made
    made.close()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def executor(machines: Machines) -> Iterator[Any]:
    machines.fill()
    wait_for(lambda: len(machines.alive()) >= 3)
    made = executors.ray()
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    with start(tmp_path_factory.mktemp("expected")) as session:
        run(session)
        return story(session)


def test_nodes_give_the_candidates_of_one_worker(
    tmp_path: Path, executor: Any, expected: list[Any]
) -> None:
    with start(tmp_path) as session:
        summary = run(session, executor=executor)
        assert story(session) == expected
        assert summary.why == "budget"
        run(session, executor=executor, finalists=1, final_seeds=1)
        assert executor.count == 3
        shown = session.status()["executor"]
        trained = [c for c in session.candidates() if c.score]
        assert all(c.classes == [nodes.numeric_class()] for c in trained)
        names = {name for c in trained for name in c.nodes}
        assert len(names) == 3 and names < {node["node"] for node in shown["nodes"]}
        assert shown["kind"] == "ray" and shown["repeated"] == 0 and shown["in_flight"] == 0
        (finalist,) = [c for c in session.candidates() if c.finals]
        ((_, path),) = session.weights(finalist).items()
        assert path.read_bytes() == b"weights"
        assert len(session.curve(finalist)) == 4


@pytest.mark.parametrize("kind", ["orphans", "fells"])
def test_a_worker_or_a_node_that_dies_changes_nothing(
    tmp_path: Path, executor: Any, expected: list[Any], kind: str
) -> None:
    """The process of Ray's that a training runs in is killed; the node itself is."""
    trainer = {kind: [28], "journal": str(tmp_path / "journal")}
    with start(tmp_path / "s", trainer=trainer) as session:
        run(session, executor=executor)
        assert (tmp_path / "journal-28").exists()
        assert story(session) == expected
        status = session.status()
        assert status["executor"]["repeated"] == 1
        assert status["states"]["lost"] == 0
        assert any("is gone" in event["what"] for event in session.events(200))


def test_a_long_training_goes_on_where_its_node_was_lost(tmp_path: Path, executor: Any) -> None:
    """What it has written down is at the head before the node dies in its fourth epoch."""
    pytest.importorskip("torch")
    import test_checkpoint_elsewhere as long

    with long.search(tmp_path / "whole") as session:
        expected = long.digits(session)
    head = str(tmp_path / "lost" / "s" / "checkpoints")
    with long.search(
        tmp_path / "lost", executor, killed=long.KILLED, head=head, victim="node"
    ) as session:
        assert long.digits(session) == expected
        assert session.status()["executor"]["repeated"] >= 1
        assert not list((tmp_path / "lost" / "s" / "checkpoints").iterdir())
    begun = long.epochs(tmp_path / "lost")[long.KILLED]
    assert begun == [0, 1, 2, 3, 3, 4, 5], "no epoch that was written down is trained again"


def test_what_a_candidate_does_is_its_outcome(tmp_path: Path, machines: Machines) -> None:
    machines.fill()
    executor = executors.ray(memory="300MiB")
    trainer = {"crash": [29], "grows": [28], "killed": [31]}
    with start(tmp_path, trainer=trainer) as session:
        run(session, budget=5, executor=executor)
        executor.close()
        rows = {c.expr: c for c in session.candidates()}
        assert "SIGABRT: about to abort" in rows["y = 29"].reason
        assert "memory while training: killed at" in rows["y = 28"].reason
        assert rows["y = 31"].state == "lost" and rows["y = 31"].tries == 2
        assert session.status()["executor"]["repeated"] == 0


def test_a_lost_object_is_a_lost_machine(machines: Machines, executor: Any) -> None:
    """A result lies where it was computed until it is fetched; that node dies before."""
    request = TrainRequest(
        candidate=1, assignment={}, seed=0, part="test", threads=1, time_limit_s=PATIENCE_S
    )
    big = Component(reference="test_ray:Big")
    executor._submit(7, Call("train", big, request, PATIENCE_S), _job(executor, big, request))
    ((ref, _),) = executor._refs.items()
    assert ray.wait([ref], timeout=PATIENCE_S, fetch_local=False)[0]
    locations = ray.experimental.get_object_locations([ref])[ref]["node_ids"]
    for node in list(machines.cluster.worker_nodes):
        if node.node_id in locations:
            machines.cluster.remove_node(node, allow_graceful=False)
    heard: list[Any] = []
    while not (ended := [h for h in heard if hasattr(h.what, "state")]):
        heard += executor._poll(1.0)
    assert ended[0].number == 7 and ended[0].what.state == "node"


class Big:
    def evaluate(self, request: TrainRequest, report: Any) -> bytes:
        return bytes(4 << 20)


def _job(executor: Any, component: Component, request: Any) -> bytes:
    executor._connect()
    found: bytes = executor._job(Call("train", component, request, PATIENCE_S))
    return found


SCRIPT = """
import sys
from pathlib import Path
from syno import _core, executors
from syno.config import config
from test_session import run, start
executor = executors.ray(sys.argv[3])
with start(Path(sys.argv[1]), trainer={"journal": sys.argv[2], "pause_s": 0.2}) as session:
    print("why:", run(session, executor=executor).why, flush=True)
executor.close()
"""


def driver(path: Path, journal: Path, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(journal), address],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_driver_that_is_killed_goes_on_elsewhere(
    tmp_path: Path, machines: Machines, expected: list[Any]
) -> None:
    """Killed beside the head, resumed by a client of ray://."""
    machines.fill()
    path, journal = tmp_path / "s", tmp_path / "journal"
    first = driver(path, journal, machines.cluster.address)
    wait_for(lambda: journal.exists() and len(journal.read_text().splitlines()) >= 4)
    first.kill()
    first.communicate()
    second = driver(path, journal, f"ray://127.0.0.1:{machines.client_port}")
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert "why: budget" in said, said
    with start(path, trainer={"journal": str(journal), "pause_s": 0.2}) as session:
        assert story(session) == expected
    # At most what three nodes had in work is trained again.
    assert len(journal.read_text().splitlines()) <= len(expected) + 1 + 3


# --- what is said before work starts


def test_a_task_that_a_node_cannot_make_is_named(tmp_path: Path, executor: Any) -> None:
    with (
        start(tmp_path, evaluator="session_fakes:Nobody") as session,
        pytest.raises(SessionError, match=r"/[0-9a-f]{6}: .*has no 'Nobody'") as caught,
    ):
        run(session, executor=executor)
    assert caught.value.code == "R019"


def test_versions_that_differ_are_named(
    tmp_path: Path, executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("nodes", "remote"):
        monkeypatch.setattr(f"syno.session.{module}.version", lambda package: "9.9")
    with start(tmp_path) as session, pytest.raises(SessionError, match=r"the head 9\.9"):
        run(session, executor=executor)


@pytest.mark.parametrize("fits", [True, False])
def test_a_node_that_comes_late_is_asked_before_it_trains(
    tmp_path: Path,
    machines: Machines,
    executor: Any,
    expected: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    fits: bool,
) -> None:
    late: list[Any] = []

    def come(what: str, candidate: Any, view: Any) -> None:
        if what != "started" or candidate.number < 2:
            return
        if not late:
            if not fits:  # of what the head finds here alone
                monkeypatch.setattr("syno.session.nodes.version", lambda package: "9.9")
            late.append(machines.cluster.add_node(num_cpus=1, object_store_memory=_STORE))
            wait_for(lambda: {n["NodeID"] for n in executor._look()} >= {late[0].node_id})
            assert late[0].node_id in executor._kept_away, "nothing is sent before it answers"
            wait_for(lambda: bool(executor._look()) and not executor._asked_late)

    try:
        with start(tmp_path, trainer={"pause_s": 0.2}) as session:
            run(session, executor=executor, callbacks=[come])
            assert story(session) == expected
            said = [event["what"] for event in session.events(200)]
            its = late[0].node_id[:6]
            trained = {name for c in session.candidates() for name in c.nodes}
            assert any(its in what and "has come and trains" in what for what in said) == fits
            unfit = [what for what in said if its in what and "not used for trainings" in what]
            assert bool(unfit) != fits and all("the head 9.9" in what for what in unfit)
            assert fits or not any(name.endswith(its) for name in trained)
            assert executor.count == (4 if fits else 3)
    finally:
        for node in late:
            machines.cluster.remove_node(node)


FULL = """
import sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from syno import executors
from syno.errors import SessionError
from test_session import run, start
place = Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={
    "num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20,
    "_system_config": {"local_fs_capacity_threshold": 0.0},  # nothing is spilled to a disk
})
for shipped in (["data"], []):
    executor = executors.ray(cluster.address, ship=shipped)
    try:
        with start(place / "s") as session:
            print("why:", run(session, budget=3, executor=executor).why, flush=True)
    except SessionError as error:
        print("code:", error.code, str(error).count(chr(10)), error, flush=True)
    executor.close()
cluster.shutdown()
"""


def test_an_object_store_that_is_full_leaves_the_session_resumable(
    tmp_path: Path, machines: Machines
) -> None:
    """A cluster of its own, with 80 MB and no disk for what does not fit."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").write_bytes(os.urandom(120 << 20))
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "code: R023" in done.stdout, (done.stdout, done.stderr[-2000:])
    assert "does not fit into Ray's object store" in done.stdout
    assert done.stdout.rstrip().endswith("why: budget"), done.stdout


def test_more_than_any_node_has_is_refused(tmp_path: Path, machines: Machines) -> None:
    greedy = executors.ray(gpus=1)
    with start(tmp_path) as session, pytest.raises(SessionError, match=r"1 CPU, 1 GPU.*has 1 CPU"):
        run(session, executor=greedy)
    greedy.close()


def test_a_cluster_without_nodes_is_given_up_resumably(
    tmp_path: Path, executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor._wait_s = 0.0

    def leave(what: str, candidate: Any, view: Any) -> None:
        if what == "started" and candidate.number == 2:
            executor._kept_away.update({n["NodeID"]: "gone" for n in ray.nodes()})

    with (
        start(tmp_path, trainer={"pause_s": 0.3}) as session,
        pytest.raises(SessionError, match="could train for 0 s"),
    ):
        run(session, executor=executor, callbacks=[leave])
    with start(tmp_path, trainer={"pause_s": 0.3}) as session:
        assert any("waiting for one" in e["what"] for e in session.events())
        assert run(session, budget=3).why == "budget"


# --- latencies


@pytest.mark.nightly
def test_latencies_are_those_of_a_node_that_is_the_target(
    tmp_path: Path, machines: Machines, expected: list[Any]
) -> None:
    machines.fill()
    node = machines.cluster.add_node(
        num_cpus=1, object_store_memory=_STORE, labels={"syno-target": "true"}
    )
    wait_for(lambda: any(n["Labels"].get("syno-target") for n in machines.alive()))
    executor = executors.ray()
    try:
        with start(tmp_path / "a") as session:
            run(session, budget=4, executor=executor)
            assert story(session) == expected[:4]
            (named,) = [n["node"] for n in session.executor["nodes"] if n["measures"]]
            assert executor._local is None  # nothing was measured here
            assert all(named not in c.nodes for c in session.candidates())
        other = '{"name": "another CPU", "cores": 64, "levels": [{"name": "L1", "ways": 2}]}'
        with (
            other_machine(tmp_path / "b", other) as session,
            pytest.raises(
                SessionError, match="differs from the session's machine: name is"
            ) as caught,
        ):
            run(session, budget=4, executor=executor)
        assert caught.value.code == "R024"
    finally:
        executor.close()
        machines.cluster.remove_node(node)


def test_a_node_is_lent_as_a_further_machine(
    tmp_path: Path, machines: Machines, expected: list[Any]
) -> None:
    """It trains nothing and times what was trained on the other nodes; nobody has a label of another name."""
    machines.fill()
    node = machines.cluster.add_node(
        num_cpus=1, object_store_memory=_STORE, labels={"syno-target": "pi"}
    )
    wait_for(lambda: any(n["Labels"].get("syno-target") == "pi" for n in machines.alive()))
    trains, lends = executors.ray(), executors.ray()
    try:
        with start(tmp_path / "a", targets={"pi": "", "desk": ""}) as session:
            run(session, budget=3, executor=trains, targets={"pi": lends})
            assert story(session) == expected[:3]
            everyone = [session.baseline, *session.candidates()]
            assert all(c.targets_us["pi"] == c.latency_us for c in everyone)
            (named,) = [n["node"] for n in session.executor["nodes"] if n["target"] == "pi"]
            assert all(named not in c.nodes for c in everyone)
            with pytest.raises(SessionError, match="the label syno-target=desk") as caught:
                run(session, budget=3, targets={"desk": executors.ray()})
            assert caught.value.code == "R019"
    finally:
        lends.close()
        trains.close()
        machines.cluster.remove_node(node)


def other_machine(path: Path, machine: str) -> Session:
    return start(path, predicted_on=machine)


def test_what_makes_a_machine_the_same() -> None:
    own = target.own_traits()
    assert own["cores"] >= 1 and own["L1 bytes"] > 0
    assert not any("gbs" in name or "ghz" in name for name in own)
    assert target.difference(own, own) == ""
    assert target.difference(own, {**own, "cores": 999}).startswith("cores is 999, not ")


# --- schedules


def matrix_product() -> Operator:
    return Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=48, n=32, k=16)


def test_schedules_are_measured_on_all_nodes(machines: Machines, tmp_path: Path) -> None:
    machines.fill()
    wait_for(lambda: len(machines.alive()) >= 3)
    executor = executors.ray()
    try:
        bench = executor.bench()
        asked: list[str] = []
        send = bench._send
        bench._send = lambda node, *rest: (asked.append(node), send(node, *rest))[1]
        executor.bench = lambda: bench
        found = tune(
            matrix_product(),
            trials=8,
            session=tmp_path / "trials.jsonl",
            progress="off",
            keep=False,
            executor=executor,
        )
        assert found.trials == found.measured == 8 and found.outcomes == {"ok": 8}
        assert len(set(asked)) == 3
        # What is on record is this machine's: the same search again measures nothing.
        again = tune(
            matrix_product(),
            trials=8,
            session=tmp_path / "trials.jsonl",
            progress="off",
            keep=False,
        )
        assert again.measured == 0 and again.trials == 8
        # A node that is gone: the others measure its share.
        first = next(iter(bench._nodes))
        bench._nodes = {"0" * 56: "gone", **bench._nodes}
        bench._cores["0" * 56] = 1.0
        bench._answer = lambda node, ref, _answer=bench._answer: (
            bench._nodes.pop(node) and None if node == "0" * 56 else _answer(node, ref)
        )
        schedule = _core.default_schedule(matrix_product().program)
        records = bench.measure(matrix_product().program, [schedule] * 3, default_options(1, False))
        assert [record.outcome for record in records] == ["ok"] * 3
        assert first in bench._nodes and "0" * 56 not in bench._nodes
    finally:
        executor.close()


def test_a_network_is_tuned_on_all_nodes(machines: Machines, tmp_path: Path) -> None:
    machines.fill()
    wait_for(lambda: len(machines.alive()) >= 3)
    options = default_options(1, False)
    with config(cache=tmp_path):
        found = tune_network(
            [matrix_product()],
            trials=6,
            options=options,
            session=tmp_path / "s",
            progress="off",
            executor="ray",
        )
        assert found.ended == "done" and found.measured == 6
        # What was found is on record here, and the same call goes on without the cluster.
        again = tune_network(
            [matrix_product()], trials=6, options=options, session=tmp_path / "s", progress="off"
        )
        assert again.measured == 0 and again.steps == found.steps
        assert matrix_product().compile().origin == "recorded"


def test_a_node_unlike_this_machine_measures_nothing(machines: Machines, tmp_path: Path) -> None:
    machines.fill()
    model = json.loads(machine_model().to_json())
    (tmp_path / "other.json").write_text(json.dumps({**model, "cores": 999}))
    executor = executors.ray()
    try:
        with (
            config(machine=tmp_path / "other.json"),  # this process's, not the nodes'
            pytest.raises(SessionError, match=r"cores is \d+, not 999") as caught,
        ):
            tune(matrix_product(), trials=2, progress="off", executor=executor)
        assert caught.value.code == "R024" and "syno-target=true" in str(caught.value)
    finally:
        executor.close()


def test_pools_measure_no_schedules() -> None:
    with pytest.raises(SessionError, match="FuturesExecutor measures no schedules"):
        tune(
            matrix_product(),
            trials=2,
            progress="off",
            executor=concurrent.futures.ThreadPoolExecutor(1),
        )


# --- what is shipped


def test_files_are_shipped_once_and_found_under_their_names(
    tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.fill()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.txt").write_text("a cat")
    (tmp_path / "shipped_task.py").write_text(
        "from pathlib import Path\n"
        "class Reader:\n"
        "    def __init__(self, path):\n"
        "        self.words = Path(path, '1.txt').read_text()\n"
        "    def evaluate(self, request, report):\n"
        "        return self.words\n"
    )
    monkeypatch.chdir(tmp_path)
    reader = Component(reference="shipped_task.py:Reader", options={"path": "photos"})
    request = TrainRequest(
        candidate=1, assignment={}, seed=0, part="test", threads=1, time_limit_s=PATIENCE_S
    )
    executor = executors.ray(ship="photos,shipped_task.py")
    executor._connect()
    monkeypatch.chdir("/")
    calls = [Call("train", reader, request, PATIENCE_S)] * 3
    found = dict(executor.run(calls))
    executor.close()
    assert [found[i].value for i in range(3)] == ["a cat"] * 3


def test_an_archive_is_of_files_below_and_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"12")
    one = ship.packed(["a"], tmp_path)
    assert one == ship.packed([tmp_path / "a" / "b"], tmp_path)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = ship.unpacked(ship.digest(one), lambda: one)
    assert (folder / "a" / "b").read_bytes() == b"12"
    assert ship.unpacked(ship.digest(one), lambda: b"never asked for") == folder
    folder.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write"):
        ship.unpacked(ship.digest(one), lambda: one)
    for wrong in ("../x", "missing", "."):
        with pytest.raises(SessionError, match="cannot be shipped"):
            ship.packed([wrong], tmp_path)


# --- addresses


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ray://", "no address of a Ray cluster"),
        ("ray://head", "no address"),
        ("ray://head:0", "no address"),
        ("ray://head:99999", "no address"),
        ("ray://no-such-host.invalid:10001", "is not known"),
        ("ray://127.0.0.1:1", "nobody answers at ray://127.0.0.1:1"),
        ("ray://8.8.8.8:10001", "--trust-network"),
    ],
)
def test_a_wrong_address_is_named(address: str, words: str) -> None:
    with pytest.raises(SessionError, match=words):
        executors.resolve(address)


def test_a_public_address_needs_tls_or_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "socket.create_connection", lambda *a, **n: asked.append(a) or socket.socket()
    )
    with pytest.raises(SessionError, match="in no private network") as caught:
        network.check_address("ray://8.8.8.8:10001", trust_network=False)
    assert caught.value.code == "R022" and not asked
    network.check_address("ray://8.8.8.8:10001", trust_network=True)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    network.check_address("ray://[2001:4860:4860::8888]:10001", trust_network=False)
    assert len(asked) == 2
    assert [network.private(ip) for ip in ("10.1.2.3", "fe80::1%eth0", "::1", "1.1.1.1", "x")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_no_cluster_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        assert options["address"] == "auto"
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(
        SessionError, match="no Ray cluster answers on this machine: Conn"
    ) as caught:
        executors.ray()._connect()  # type: ignore[attr-defined]
    assert caught.value.code == "R021"


def test_facts_of_a_node_travel() -> None:
    own = nodes.facts()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(own), type=nodes.Facts) == own
    assert fakes.parent_of(os.getpid()) == os.getppid()


def test_a_head_under_load_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from syno.executors import ray_cluster

    monkeypatch.setattr(ray_cluster, "_PAUSE_S", 0.0)

    class Head:
        """Fails to start its server for a client so many times."""

        def __init__(self, fails: int) -> None:
            self.fails, self.asked, self.closed = fails, 0, 0

        def init(self, **_: Any) -> None:
            self.asked += 1
            if self.asked <= self.fails:
                raise ConnectionAbortedError("Starting Ray client server failed.")

        def shutdown(self) -> None:
            self.closed += 1

    executor = ray_cluster.RayExecutor()
    late, never = Head(2), Head(99)
    executor._initialise(late)
    assert (late.asked, late.closed) == (3, 2)
    with pytest.raises(ConnectionAbortedError):
        executor._initialise(never)
    assert never.asked == ray_cluster._ATTEMPTS
