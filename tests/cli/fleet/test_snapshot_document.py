from collections.abc import Collection

import numpy as np
from rtolap.cli.fleet.snapshot import document, log_dir_rows
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.rates import TopicRates
from rtolap.kafka.administration.values import Partition, Replica

from tests.support.twins.administered_cluster import MemoryCluster
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock


def test_every_disk_has_a_row_and_a_broker_without_known_disks_one() -> None:
    cluster = MemoryCluster("fleet")
    cluster.add_broker(1, "a", {"/d0": 1000, "/d1": 1000})
    cluster.add_broker(2, None, {"/d0": 1000})
    cluster.add_partition(Partition("orders", 0), [1, 2], 300, "/d0")
    cluster.brokers[2].silent = True
    administration = MemoryAdministration(cluster)
    administration.move_log_dirs({Replica(Partition("orders", 0), 1): "/d1"})
    cluster.advance(0.000001)

    def rates(brokers: Collection[int]) -> TopicRates:
        into, out = np.array([70.4]), np.array([9.0])
        return TopicRates(np.array([1], np.int32), ("orders",), into, out, frozenset(brokers), {})

    taken = collect_snapshot(administration, ManualClock(5), rates)
    rows = log_dir_rows(taken)
    assert [(row["broker"], row["log_dir"], row["used_bytes"], row["usable_bytes"]) for row in rows] == [
        (1, "/d0", 300, 700),
        (1, "/d1", 100, 900),
        (2, None, None, None),
    ]
    assert [row["moving"] for row in rows] == [1, 1, 0]
    assert [(row["in_per_s"], row["out_per_s"]) for row in rows] == [(70, 9), (70, 9), (0, 0)]
    told = document(taken)
    assert (told["cluster_id"], told["partitions"], told["replicas"]) == ("fleet", 1, 2)
