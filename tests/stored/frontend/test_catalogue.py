"""Stored tables in the ledger: what is made, changed and dropped, whatever becomes of nodes and masters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import msgspec
import pytest
from rtolap.base.errors import DefinitionError, NotFound, NotLeader, NotYet, Refused, RowsRefused, Unavailable
from rtolap.model.stored.schema import StoredSchema
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import (
    AddColumn,
    AddPartition,
    DropColumn,
    RenameColumn,
    TableName,
)
from rtolap.stored.frontend.catalogue.read_views import ReadViews
from rtolap.stored.frontend.catalogue.table_writes import ON_DEMAND_MAX, place
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.labels import LabelPolicy
from rtolap.stored.frontend.transactions.publishing import Publisher
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.frontend.upkeep import CHANGES_KEPT_MS, PartitionUpkeep, Upkeep
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks
from rtolap.stored.metastore import transactions as transaction_rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.metastore.records import BeginRequest, Partition, PendingTabletTask, Tablet
from rtolap.stored.stream_load.table_entry import TableEntry

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock
from tests.support.twins.storage_nodes import MemoryNodes, MemoryTabletHosts

NODES = ("n1", "n2", "n3", "n4")
DAY_MS = 86_400_000
NOW_MS = 19_675 * DAY_MS + 3_600_000  # 2023-11-14 01:00
LEASE_MS = 400 * DAY_MS
REQUEST = "a-request-of-somebody-"


class World:
    def __init__(self, path: Path) -> None:
        self.clock = ManualClock(NOW_MS)
        self.ledger = open_ledger(path, clock=self.clock)
        self.hosts = MemoryTabletHosts(NODES)
        self.living: tuple[str, ...] = NODES
        self.lately: tuple[str, ...] = ()
        self.mastership = Mastership(Leases(self.ledger), "here", lease_ms=LEASE_MS)
        assert self.mastership.acquire()
        self.catalogue = Catalogue(
            self.ledger,
            self.mastership,
            self.hosts,
            lambda connection: self.living,
            lately=lambda connection: self.lately,
        )
        self.upkeep = PartitionUpkeep(self.catalogue)
        self.views = ReadViews(self.ledger, lambda connection: {node: f"{node}:1" for node in self.living})

    def tablets(self, name: str = "t") -> dict[str, set[str]]:
        """Node -> partitions that it keeps tablets of."""
        return {
            node: {tablet.partition.name for tablet in host.tablets if tablet.partition.table == name}
            for node, host in self.hosts.hosts.items()
        }

    def tasks(self) -> tuple[PendingTabletTask, ...]:
        return self.ledger.read("r", pending_tablet_tasks.all_tasks)

    def names(self, table: str = "t") -> list[str]:
        return [part.name for part in self.catalogue.table("d", table).partitions]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "ledger.db")
    yield made
    made.ledger.close()


def by_day(
    name: str = "t", *, ahead: int = 2, retention_ms: int | None = None, on_demand: bool = True
) -> StoredTable:
    return StoredTable(
        database="d",
        name=name,
        columns=(StoredColumn("at", "timestamp", nullable=False), StoredColumn("v", "int")),
        keys=("at",),
        partitions=RangePartitions("at", "day", ahead, retention_ms, on_demand),
        buckets=Buckets(2),
    )


def plain(name: str = "t") -> StoredTable:
    return StoredTable(database="d", name=name, columns=(StoredColumn("v", "int"), StoredColumn("w", "int")))


def test_a_table_has_its_partitions_on_nodes_at_once(world: World) -> None:
    made = world.catalogue.create_table(by_day())
    assert [part.name for part in made.partitions] == ["p20231114", "p20231115", "p20231116"]
    entry = world.catalogue.table("d", "t")
    assert len(entry.replicas) == 3 * 2 * 3
    for replica in entry.replicas:
        assert replica.tablet in world.hosts.hosts[replica.node].tablets
    assert world.tasks() == ()


def test_a_table_without_partitions_has_one(world: World) -> None:
    world.catalogue.create_table(plain())
    assert world.names() == ["all"]


def test_creating_the_same_again_changes_nothing(world: World) -> None:
    first = world.catalogue.create_table(by_day())
    assert world.catalogue.create_table(by_day()) == first
    with pytest.raises(Refused, match="is there already with another definition"):
        world.catalogue.create_table(by_day(ahead=5))
    assert world.catalogue.create_table(by_day(ahead=5), if_not_exists=True) == first


@pytest.mark.parametrize("database", ["rtolap", "information_schema"])
def test_databases_of_cubes_are_not_for_stored_tables(world: World, database: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be in database"):
        world.catalogue.create_table(msgspec.structs.replace(plain(), database=database))


def test_without_a_node_there_is_no_table(world: World) -> None:
    world.living = ()
    with pytest.raises(Unavailable, match="no storage node"):
        world.catalogue.create_table(plain())
    with pytest.raises(NotFound):
        world.catalogue.table("d", "t")


def test_partitions_are_made_ahead_and_dropped_behind(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=1, retention_ms=2 * DAY_MS))
    assert world.names() == ["p20231114", "p20231115"]
    assert world.upkeep.run_once() == (0, 0)
    world.clock.advance_ms(2 * DAY_MS)
    assert world.upkeep.run_once() == (2, 0)
    assert world.names() == ["p20231114", "p20231115", "p20231116", "p20231117"]
    world.clock.advance_ms(2 * DAY_MS)
    assert world.upkeep.run_once() == (2, 2)
    assert world.names() == ["p20231116", "p20231117", "p20231118", "p20231119"]
    kept = set().union(*world.tablets().values())
    assert kept == set(world.names())
    assert world.upkeep.run_once() == (0, 0)


def test_loads_into_the_past_make_their_partitions(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=0, retention_ms=10 * DAY_MS))
    entry = world.catalogue.ensure_partitions(
        "d", "t", [NOW_MS - 5 * DAY_MS, NOW_MS - 5 * DAY_MS + 1, NOW_MS]
    )
    assert [part.name for part in entry.partitions] == ["p20231109", "p20231114"]
    with pytest.raises(Refused, match="the time of partition p20231101"):
        world.catalogue.ensure_partitions("d", "t", [NOW_MS - 13 * DAY_MS, NOW_MS - 6 * DAY_MS])
    assert world.names() == ["p20231109", "p20231114"]
    forever = [NOW_MS + day * DAY_MS for day in range(ON_DEMAND_MAX + 2)]
    with pytest.raises(RowsRefused, match="too many new partitions"):
        world.catalogue.ensure_partitions("d", "t", forever)


def test_a_table_without_partitions_on_demand_gets_none_by_loads(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=0, on_demand=False))
    entry = world.catalogue.ensure_partitions("d", "t", [NOW_MS + DAY_MS])
    assert [part.name for part in entry.partitions] == ["p20231114"]


def partition(day: int, name: str, *, days: int = 1, if_not_exists: bool = False) -> AddPartition:
    """`day` days after the present one."""
    start_ms = (19_675 + day) * DAY_MS
    return AddPartition(name, start_ms, start_ms + days * DAY_MS, if_not_exists)


def test_a_partition_is_added_once_and_dropped(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=0, on_demand=False))
    world.catalogue.add_partition("d", "t", partition(5, "p20231119"))
    assert world.names() == ["p20231114", "p20231119"]
    with pytest.raises(Refused, match=r"partition p20231119 of d\.t is there already"):
        world.catalogue.add_partition("d", "t", partition(5, "p20231119"))
    again = world.catalogue.add_partition("d", "t", partition(5, "p20231119", if_not_exists=True))
    assert len(again.partitions) == 2
    kept = {node: names for node, names in world.tablets().items() if names}
    assert set().union(*kept.values()) == {"p20231114", "p20231119"}
    world.catalogue.drop_partition("d", "t", "p20231119")
    assert world.names() == ["p20231114"]
    assert set().union(*world.tablets().values()) == {"p20231114"}
    with pytest.raises(NotFound, match=r"no partition p20231119 in d\.t"):
        world.catalogue.drop_partition("d", "t", "p20231119")
    world.catalogue.drop_partition("d", "t", "p20231119", if_exists=True)
    assert world.tasks() == ()


def test_a_partition_without_a_lower_bound_begins_where_the_last_one_ends(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=1))
    end_ms = (19_675 + 3) * DAY_MS
    world.catalogue.add_partition("d", "t", AddPartition("p20231116", None, end_ms))
    assert world.names() == ["p20231114", "p20231115", "p20231116"]
    with pytest.raises(DefinitionError, match="is not one day; expected such as 2023-11-17"):
        world.catalogue.add_partition("d", "t", AddPartition("p20231118", None, end_ms + 2 * DAY_MS))
    with pytest.raises(Refused, match="has no lower bound"):
        world.catalogue.add_partition("d", "t", AddPartition("p20231113", None, end_ms - 3 * DAY_MS))


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (partition(1, "p20231115", days=2), DefinitionError, "is not one day"),
        (partition(1, "p20231115", days=-1), DefinitionError, "is not one day"),
        (AddPartition("p20231115", NOW_MS, NOW_MS + DAY_MS), DefinitionError, "is not one day"),
        (partition(1, "tomorrow"), DefinitionError, "another name than its time says; expected p20231115"),
        (partition(-9, "p20231105"), Refused, "the time of partition p20231105"),
        (AddPartition("p", 1 << 62, (1 << 62) + 1), Refused, "outside the calendar"),
    ],
)
def test_a_partition_that_the_table_would_not_make_is_refused(
    world: World, asked: AddPartition, error: type[Exception], words: str
) -> None:
    world.catalogue.create_table(by_day(ahead=0, retention_ms=5 * DAY_MS))
    with pytest.raises(error, match=words):
        world.catalogue.add_partition("d", "t", asked)
    assert world.names() == ["p20231114"]


def test_a_table_without_partitions_takes_and_gives_none(world: World) -> None:
    world.catalogue.create_table(plain())
    with pytest.raises(DefinitionError, match="partition p20231115 cannot be added"):
        world.catalogue.add_partition("d", "t", partition(1, "p20231115"))
    with pytest.raises(DefinitionError, match="partition all cannot be dropped"):
        world.catalogue.drop_partition("d", "t", "all", if_exists=True)
    assert world.names() == ["all"]


def test_a_partition_that_a_load_runs_into_outlives_its_retention(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=0, retention_ms=DAY_MS))
    partition = Partition("d", "t", "p20231114", 1)

    def begin(connection: Connection) -> int:
        made = transaction_rows.insert(connection, BeginRequest("d", ("t",), "l", "r", 1), 0)
        transaction_rows.touch(connection, made.txn_id, (partition,))
        return made.txn_id

    world.ledger.write("begin", int, begin)
    world.clock.advance_ms(5 * DAY_MS)
    assert world.upkeep.run_once() == (1, 0)
    assert "p20231114" in world.names()
    with pytest.raises(NotYet):
        world.catalogue.drop_table("d", "t")
    with pytest.raises(NotYet):
        world.catalogue.truncate("d", "t")
    with pytest.raises(NotYet):
        world.catalogue.drop_partition("d", "t", "p20231114", if_exists=True)
    assert "p20231114" in world.names()


def test_a_node_that_was_away_is_told_later(world: World) -> None:
    world.hosts.hosts["n1"].up = False
    world.hosts.hosts["n2"].up = False
    world.catalogue.create_table(by_day())
    world.catalogue.change_columns("d", "t", (AddColumn(StoredColumn("x", "int")),))
    assert {task.node for task in world.tasks()} == {"n1", "n2"}
    world.hosts.hosts["n1"].up = True
    world.upkeep.run_once()
    assert {task.node for task in world.tasks()} == {"n2"}
    world.hosts.hosts["n2"].up = True
    world.upkeep.run_once()
    assert world.tasks() == ()
    entry = world.catalogue.table("d", "t")
    for replica in entry.replicas:
        assert world.hosts.hosts[replica.node].tablets[replica.tablet] == (entry.table_id, entry.schema)


def test_what_is_dropped_is_not_made_any_more(world: World) -> None:
    world.hosts.hosts["n1"].up = False
    world.catalogue.create_table(by_day())
    world.catalogue.drop_table("d", "t")
    world.hosts.hosts["n1"].up = True
    world.upkeep.run_once()
    assert world.tasks() == ()
    assert set().union(*world.tablets().values()) == set()
    with pytest.raises(NotFound, match="unknown table, tableName=t"):
        world.catalogue.drop_table("d", "t")


def test_a_table_recreated_is_another_one(world: World) -> None:
    first = world.catalogue.create_table(plain())
    world.hosts.hosts["n1"].up = False
    world.catalogue.drop_table("d", "t")
    world.hosts.hosts["n1"].up = True
    second = world.catalogue.create_table(plain())
    world.upkeep.run_once()
    assert second.table_id > first.table_id
    for replica in world.catalogue.table("d", "t").replicas:
        assert world.hosts.hosts[replica.node].tablets[replica.tablet][0] == second.table_id


def test_truncating_keeps_the_columns(world: World) -> None:
    world.catalogue.create_table(plain())
    changed = world.catalogue.change_columns("d", "t", (RenameColumn("w", "x"), DropColumn("v")))
    emptied = world.catalogue.truncate("d", "t")
    assert emptied.table_id > changed.table_id
    assert emptied.schema == changed.schema
    assert emptied.schema.names == ("x",)
    assert world.tasks() == ()


def test_several_changes_are_all_or_nothing(world: World) -> None:
    made = world.catalogue.create_table(plain())
    with pytest.raises(NotFound):
        world.catalogue.change_columns("d", "t", (RenameColumn("v", "x"), DropColumn("nope")))
    assert world.catalogue.table("d", "t").schema == made.schema
    changed = world.catalogue.change_columns("d", "t", (RenameColumn("v", "x"), DropColumn("w")))
    assert changed.schema.version == made.schema.version + 1


def test_a_database_is_there_by_itself_or_with_its_tables(world: World) -> None:
    world.catalogue.create_table(plain())
    world.catalogue.create_database("shop")
    assert world.catalogue.databases() == ("d", "shop")
    for there in ("d", "shop"):
        with pytest.raises(Refused, match=f"database {there} is there already"):
            world.catalogue.create_database(there)
        world.catalogue.create_database(there, if_not_exists=True)
    with pytest.raises(Refused, match="database d has tables; found t"):
        world.catalogue.drop_database("d")
    world.catalogue.drop_database("shop", request_id=REQUEST)
    world.catalogue.create_database("shop")
    world.catalogue.drop_database("shop", request_id=REQUEST)
    assert world.catalogue.databases() == ("d", "shop")
    with pytest.raises(NotFound, match="unknown database nope"):
        world.catalogue.drop_database("nope")
    for name in ("rtolap", "information_schema", "", "x" * 129):
        with pytest.raises(DefinitionError):
            world.catalogue.create_database(name)


def test_a_successor_answers_a_change_as_its_predecessor_did(world: World) -> None:
    """All of them, whatever was made since; also a long time later."""
    made = world.catalogue.create_table(by_day(ahead=0, on_demand=False), request_id=REQUEST + "create")
    request: dict[str, Callable[[Catalogue], object]] = {
        "add": lambda it: it.add_partition("d", "t", partition(5, "p20231119"), request_id=REQUEST + "add"),
        "alter": lambda it: it.change_columns("d", "t", (DropColumn("v"),), request_id=REQUEST + "alter"),
        "truncate": lambda it: it.truncate("d", "t", request_id=REQUEST + "truncate"),
        "unadd": lambda it: it.drop_partition("d", "t", "p20231114", request_id=REQUEST + "unadd"),
        "drop": lambda it: it.drop_table("d", "t", request_id=REQUEST + "drop"),
    }
    first = {name: change(world.catalogue) for name, change in request.items()}
    recreated = world.catalogue.create_table(by_day(ahead=1))
    world.clock.advance_ms(LEASE_MS + 1)
    other = Mastership(Leases(world.ledger), "there", lease_ms=LEASE_MS)
    assert other.acquire()
    successor = Catalogue(world.ledger, other, world.hosts, lambda connection: world.living)
    again = {name: change(successor) for name, change in request.items()}
    assert again == first
    definition = by_day(ahead=0, on_demand=False)
    assert successor.create_table(definition, request_id=REQUEST + "create") == made
    assert successor.tables() == (recreated,)
    with pytest.raises(Refused, match="has been another change"):
        successor.drop_table("d", "t", request_id=REQUEST + "create")


def test_what_was_refused_is_refused_again(world: World) -> None:
    for change in (
        lambda: world.catalogue.drop_table("d", "t", request_id=REQUEST + "drop"),
        lambda: world.catalogue.truncate("d", "t", request_id=REQUEST + "truncate"),
    ):
        for _ in range(2):
            with pytest.raises(NotFound, match="unknown table, tableName=t"):
                change()
            world.catalogue.create_table(plain())
        world.catalogue.drop_table("d", "t")


def test_a_change_without_a_node_is_made_when_it_comes_again(world: World) -> None:
    """Nobody was there is no answer: the client that hears it sends the same request again."""
    world.living = ()
    with pytest.raises(Unavailable):
        world.catalogue.create_table(plain(), request_id=REQUEST)
    world.living = NODES
    assert world.catalogue.create_table(plain(), request_id=REQUEST).name == "t"


def test_of_one_change_that_comes_often_at_once_one_is_made(world: World) -> None:
    world.catalogue.create_table(plain())
    with ThreadPoolExecutor(6) as pool:
        emptied = list(pool.map(lambda _: world.catalogue.truncate("d", "t", request_id=REQUEST), range(6)))
    assert len({each.table_id for each in emptied}) == 1
    assert world.catalogue.table("d", "t").table_id == emptied[0].table_id


def test_a_change_stands_though_its_master_is_deposed_before_nodes_are_told(world: World) -> None:
    """It is no reason to send the client on to the next master, which would do it once more."""
    before = world.catalogue.create_table(plain())
    other = Mastership(Leases(world.ledger), "there", lease_ms=LEASE_MS)
    drop = world.hosts.drop

    def deposed(node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        world.clock.advance_ms(LEASE_MS + 1)
        other.acquire()
        drop(node, table_id, partition, buckets)

    world.hosts.drop = deposed  # type: ignore[method-assign]
    emptied = world.catalogue.truncate("d", "t")
    assert emptied.table_id > before.table_id
    assert world.tasks() != ()
    successor = Catalogue(world.ledger, other, world.hosts, lambda connection: world.living)
    successor.settle()
    assert world.tasks() == ()


def test_answers_are_forgotten_when_nobody_sends_their_changes_any_more(world: World) -> None:
    leases = Leases(world.ledger)
    mastership = Mastership(leases, "here", lease_ms=LEASE_MS)
    assert mastership.acquire()
    nodes = MemoryNodes(NODES)
    upkeep = Upkeep(
        world.ledger,
        mastership,
        TransactionManager(world.ledger, mastership, nodes),
        Publisher(world.ledger, mastership, nodes),
        LabelPolicy(),
    )
    catalogue = Catalogue(world.ledger, mastership, world.hosts, lambda connection: NODES)
    catalogue.create_table(plain())
    emptied = catalogue.truncate("d", "t", request_id=REQUEST)
    world.clock.advance_ms(DAY_MS)
    assert upkeep.run_once()
    assert catalogue.truncate("d", "t", request_id=REQUEST) == emptied
    world.clock.advance_ms(CHANGES_KEPT_MS)
    assert upkeep.run_once()
    assert upkeep.forget_changes() == 0
    assert catalogue.truncate("d", "t", request_id=REQUEST).table_id > emptied.table_id


def test_only_the_master_changes_anything(world: World) -> None:
    world.catalogue.create_table(plain())
    other = Mastership(Leases(world.ledger), "there", lease_ms=LEASE_MS)
    world.clock.advance_ms(LEASE_MS + 1)
    assert other.acquire()
    for change in (
        lambda: world.catalogue.create_table(plain("u")),
        lambda: world.catalogue.drop_table("d", "t"),
        lambda: world.catalogue.truncate("d", "t"),
        lambda: world.catalogue.add_partition("d", "t", partition(1, "p20231115")),
        lambda: world.catalogue.drop_partition("d", "t", "p20231114"),
        lambda: world.catalogue.change_columns("d", "t", (DropColumn("v"),)),
    ):
        with pytest.raises(NotLeader):
            change()
    assert world.catalogue.table("d", "t").schema.names == ("v", "w")


def test_a_read_view_is_of_one_moment(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=0))
    partition = Partition("d", "t", "p20231114", 1)
    holder = world.catalogue.table("d", "t").replicas[0]

    def publish(connection: Connection) -> None:
        assert partition_rows.assign(connection, partition) == 1
        assert partition_rows.make_visible(connection, partition, 1)
        partition_rows.reached(connection, holder.node, partition, (holder.tablet.bucket,), 1)

    world.ledger.write("publish", type(None), publish)
    (table,) = world.views.read_view([TableName("d", "t")]).tables
    (part,) = table.partitions
    assert part.version == 1
    nodes = {Tablet(partition, tablet.bucket): tablet.nodes for tablet in part.tablets}
    assert nodes[holder.tablet] == (holder.node,)
    assert [held for tablet, held in nodes.items() if tablet != holder.tablet] == [()]
    (info,) = world.views.partitions(TableName("d", "t"))
    assert (info.visible_version, info.committed_version, info.buckets, info.replicas) == (1, 1, 2, 6)
    with pytest.raises(NotFound):
        world.views.read_view([TableName("d", "nope")])


def test_replicas_are_spread_over_nodes() -> None:
    placed = place(Partition("d", "t", "p"), 300, NODES)
    assert all(len(set(nodes)) == 3 for nodes in placed.values())
    counts = [sum(node in nodes for nodes in placed.values()) for node in NODES]
    assert min(counts) > 180
    assert place(Partition("d", "t", "p"), 300, NODES[::-1]) == placed
    assert place(Partition("d", "t", "p"), 1, ("n1",)) == {0: ("n1",)}


def test_nodes_that_are_away_get_replicas_only_where_too_few_are_up() -> None:
    part = Partition("d", "t", "p")
    assert place(part, 300, NODES[:3], away=NODES) == place(part, 300, NODES[:3])
    placed = place(part, 300, ("n1", "n2"), away=("n2", "n3", "n4"))
    assert all({"n1", "n2"} < set(nodes) and len(nodes) == 3 for nodes in placed.values())
    assert {node for nodes in placed.values() for node in nodes} == set(NODES)
    with pytest.raises(Unavailable):
        place(part, 1, (), away=NODES)


def test_a_partition_that_is_made_while_a_node_is_away_has_all_its_replicas_when_it_is_back(
    world: World,
) -> None:
    world.living = world.lately = NODES[:3]
    world.catalogue.create_table(by_day(ahead=0))
    world.living = ("n1", "n2")
    down(world, "n3")
    world.clock.advance_ms(DAY_MS)
    world.upkeep.run_once()
    assert world.tablets()["n3"] == {"p20231114"}
    assert {task.node for task in world.tasks()} == {"n3"}
    up(world, "n3")
    world.upkeep.run_once()
    assert world.tasks() == ()
    assert {node: len(parts) for node, parts in world.tablets().items()} == {
        "n1": 2,
        "n2": 2,
        "n3": 2,
        "n4": 0,
    }


def test_what_was_paid_meanwhile_is_not_told_again(world: World) -> None:
    """A drop that is read before a load recreates the partition must not come to the nodes after it."""
    world.catalogue.create_table(by_day(ahead=0))
    down(world, *NODES)
    world.catalogue.drop_partition("d", "t", "p20231114")
    up(world, *NODES)
    read = world.ledger.read
    made: dict[str, set[str]] = {}

    def slow_read(what: str, work: Callable[[Connection], object]) -> object:
        found = read(what, work)
        if work is pending_tablet_tasks.all_tasks and not made:
            make_again(world)
            made.update(world.tablets())
        return found

    world.ledger.read = slow_read  # type: ignore[method-assign, assignment]
    world.catalogue.settle()
    assert made == world.tablets()
    assert any(made.values())


def test_a_partition_is_not_made_while_somebody_is_dropping_it(world: World) -> None:
    world.catalogue.create_table(by_day(ahead=0))
    down(world, *NODES)
    world.catalogue.drop_partition("d", "t", "p20231114")
    up(world, *NODES)
    drop, create = world.hosts.drop, world.hosts.create
    dropping, made, overlaps = Event(), Event(), []

    def slow_drop(node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        if not dropping.is_set():
            dropping.set()
            overlaps.append(made.wait(0.2))  # it must not come, however long it is waited for
        drop(node, table_id, partition, buckets)

    def noted(
        node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        create(node, table_id, partition, buckets, schema)
        made.set()

    world.hosts.drop, world.hosts.create = slow_drop, noted  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        settling = pool.submit(world.catalogue.settle)
        assert dropping.wait(10)
        make_again(world)
        settling.result()
    assert overlaps == [False]
    for replica in world.catalogue.table("d", "t").replicas:
        assert replica.tablet in world.hosts.hosts[replica.node].tablets


def test_a_load_waits_for_nodes_that_are_being_told_of_what_another_one_has_made(world: World) -> None:
    """Loads that come at once need the same new partition; one of them makes it."""
    world.catalogue.create_table(by_day(ahead=0))
    create, telling, told = world.hosts.create, Event(), Event()

    def slow_create(
        node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        telling.set()
        assert told.wait(20)
        create(node, table_id, partition, buckets, schema)

    def load() -> list[str]:
        """Where replicas are missing when the load goes on."""
        entry = world.catalogue.ensure_partitions("d", "t", [NOW_MS + 5 * DAY_MS])
        return missing_on(world, entry)

    def later_load() -> list[str]:
        """Finds the partition when it begins."""
        return missing_on(world, world.catalogue.table_to_load("d", "t"))

    world.hosts.create = slow_create  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(load)
        assert telling.wait(20)
        others = [pool.submit(load), pool.submit(load), pool.submit(later_load)]
        wait(others, timeout=0.3)  # they must not go on, however long it is waited for
        told.set()
        assert [each.result(20) for each in (first, *others)] == [[], [], [], []]


def missing_on(world: World, entry: TableEntry) -> list[str]:
    return [
        replica.node
        for replica in entry.replicas
        if replica.tablet not in world.hosts.hosts[replica.node].tablets
    ]


def test_a_load_asks_no_node_that_does_not_answer_while_the_others_have_all(world: World) -> None:
    down(world, "n1")
    world.catalogue.create_table(by_day())
    asked: list[str] = []
    world.hosts.create = lambda node, *rest: asked.append(node)  # type: ignore[method-assign, assignment]
    assert {task.node for task in world.tasks()} == {"n1"}
    assert missing_on(world, world.catalogue.table_to_load("d", "t"))
    assert asked == []


def make_again(world: World) -> None:
    """As a request does it: what is owed is told first."""
    world.catalogue.drop_partition("d", "t", "p20231114", if_exists=True)
    world.catalogue.ensure_partitions("d", "t", [NOW_MS])


def down(world: World, *nodes: str) -> None:
    for node in nodes:
        world.hosts.hosts[node].up = False


def up(world: World, *nodes: str) -> None:
    for node in nodes:
        world.hosts.hosts[node].up = True
