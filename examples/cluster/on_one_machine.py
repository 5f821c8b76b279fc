"""A search on a cluster of several nodes, all on this machine, to see one work: needs ``pip install "syno[ray]"``.

    python examples/cluster/on_one_machine.py -o runs/cluster --nodes 3 --budget 6

Nodes are Ray's own test nodes, of one core each, beside a head that trains nothing. On machines of your own nothing of this is
needed but the last call; README.md has the commands.
"""

import argparse
import collections
import os
import sys
from pathlib import Path

TASK = Path(__file__).resolve().parents[1] / "my_task.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/cluster"))
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--budget", type=int, default=6, help="candidates to train")
    parser.add_argument("--width", type=int, default=16, help="channels of the task's network")
    options = parser.parse_args()
    if options.nodes < 1 or options.budget < 1:
        parser.error("give at least one node and one candidate")

    import ray
    from ray.cluster_utils import Cluster

    import syno
    from syno.searching.pipeline import search_task

    # Nodes import syno from where this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join([p for p in sys.path if p])
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        for _ in range(options.nodes):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        found = search_task(
            f"{TASK}:make_task",
            options.output,
            options={"width": options.width},
            budget=options.budget,
            finalists=0,
            max_steps=5,
            batch_width=2,
            lag=2 * options.nodes,  # candidates under way while further ones are proposed
            executor=syno.executors.ray(),
            progress="log",
        )
        trained = collections.Counter(
            node for candidate in found.view.candidates() for node in candidate.nodes
        )
        for node, count in sorted(trained.items()):
            print(f"{node} trained {count}")
        print(found.report.conclusion)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
