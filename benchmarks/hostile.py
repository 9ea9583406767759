"""What one plain user or a neighbour does to others: their p99, and the memory of every process, by attack.

    python -m benchmarks.hostile [--only "long data"] [--seed 1] [--json]

Real ZooKeeper, Kafka and services of their own, with default settings. A well-behaved client asks over HTTP
and MySQL, loads rows, calls Flight servers and ships edits while each attack runs, and checks every answer.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

import msgspec

from benchmarks import servers
from tests.support.hostile.attacked import attacked_cluster, table_of
from tests.support.hostile.user_attacks import ATTACKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="this attack, or these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="rtolap-bench-")))
        zookeeper, kafka = opened.enter_context(servers.zookeeper()), opened.enter_context(servers.kafka())
        cluster = opened.enter_context(attacked_cluster(folder / "cluster", zookeeper, kafka))
        reports = [cluster.attack(name, options.seed) for name in options.only or ATTACKS]
    if options.json:
        print(msgspec.json.encode(reports).decode())
        return
    print(table_of(reports))


if __name__ == "__main__":
    main()
