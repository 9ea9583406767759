"""The first load of a partition waits for nodes that can take its rows, within its own timeout."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rtolap.base.errors import NotYet, Unavailable
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.stored.bodies.options import LoadOptions
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.stream_load.distribution import Distribution

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock
from tests.support.twins.storage_nodes import MemoryTabletHosts

NODES = ("n1", "n2", "n3")
NOW_MS = 1_699_923_600_000  # 2023-11-14 01:00
ROWS = pa.record_batch(
    {"at": pa.array([datetime(2023, 11, 12, 1)], pa.timestamp("us")), "n": pa.array([1], pa.int32())}
)
LATER = 3  # times that something fails at first
OPTIONS = LoadOptions()


class World:
    """A table of which loads make the partitions, but for today's. `unheard`: how often nobody is heard."""

    def __init__(self, path: Path) -> None:
        self.ledger = open_ledger(path, clock=ManualClock(NOW_MS))
        self.hosts = MemoryTabletHosts(NODES)
        self.unheard = 0
        mastership = Mastership(Leases(self.ledger), "here", lease_ms=600_000)
        assert mastership.acquire()
        self.catalogue = Catalogue(self.ledger, mastership, self.hosts, self.living)
        self.catalogue.create_table(
            StoredTable(
                database="d",
                name="t",
                columns=(StoredColumn("at", "timestamp", nullable=False), StoredColumn("n", "int")),
                keys=("at",),
                partitions=RangePartitions("at", "day", 0, None, True),
            )
        )
        assert [part.name for part in self.catalogue.table("d", "t").partitions] == ["p20231114"]

    def living(self, connection: Connection) -> Collection[str]:
        if self.unheard:
            self.unheard -= 1
            return ()
        return NODES

    def distribution(self, timeout_s: float) -> Distribution:
        table = self.catalogue.table_to_load("d", "t")
        return Distribution(self.catalogue, table, OPTIONS, time.monotonic() + timeout_s)

    def failing(self, call: str, error: Exception) -> None:
        """Each of the nodes fails at it first."""
        right, failures = getattr(self.hosts, call), [error] * LATER * len(NODES)

        def work(*asked: Any) -> None:
            if failures:
                raise failures.pop()
            right(*asked)

        setattr(self.hosts, call, work)

    def tablets(self) -> list[int]:
        """Of each node, how many it keeps of the partition that the rows need."""
        return [
            sum(tablet.partition.name == "p20231112" for tablet in self.hosts.hosts[node].tablets)
            for node in NODES
        ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "ledger.db")
    yield made
    made.ledger.close()


def test_until_nodes_are_heard(world: World) -> None:
    world.unheard = LATER
    (part,) = world.distribution(60).split(ROWS).parts
    assert (part.partition, part.rows.num_rows) == ("p20231112", 1)
    assert len(set(world.tablets())) == 1
    assert world.tablets()[0] > 0


def test_until_a_majority_of_those_that_are_to_keep_them_is_heard_again(world: World) -> None:
    world.distribution(60).split(ROWS)
    world.unheard = LATER
    assert len(world.distribution(60).split(ROWS).parts) == 1
    assert world.unheard == 0


def test_until_nodes_have_made_the_tablets(world: World) -> None:
    world.failing("create", Unavailable("it has just been started"))
    world.distribution(60).split(ROWS)
    assert sum(count > 0 for count in world.tablets()) >= 2


def test_until_a_partition_that_is_being_dropped_is_gone(world: World) -> None:
    world.distribution(60).split(ROWS)
    world.failing("drop", Unavailable("no answer within the time"))
    world.catalogue.drop_partition("d", "t", "p20231112")
    with pytest.raises(NotYet, match="still being dropped"):
        world.distribution(0).split(ROWS)
    (part,) = world.distribution(60).split(ROWS).parts
    assert part.partition == "p20231112"


def test_no_longer_than_its_own_timeout(world: World) -> None:
    world.unheard = 1_000_000
    with pytest.raises(Unavailable, match="no storage node can keep"):
        world.distribution(0).split(ROWS)
    world.unheard = 0
    world.distribution(60).split(ROWS)
    world.unheard = 1_000_000
    assert len(world.distribution(0).split(ROWS).parts) == 1, "the nodes themselves say what is missing"
