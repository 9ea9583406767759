"""The add partition role and its client before our own MySQL endpoint, over real sockets; tables in
memory.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import DefinitionError, Refused, Unauthorized, Unavailable
from rtolap.model.loader import Loader, SinkPartitions
from rtolap.model.stored.partitions import PartitionRange, partition_of
from rtolap.model.stored.table import PartitionUnit, RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.mysql_partitions import KnownPartition, MysqlPartitions, bounds_of
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.servers.tls import load_context
from rtolap.stored.loader.partition_role import PartitionRole
from rtolap.stored.loader.target import Target, target_of

from tests.support.certificates import make_certificates
from tests.support.cubes.flights import flights_world
from tests.support.query.query_endpoints import DEFINING_USER, PASSWORD, USER, Endpoints, open_endpoints
from tests.support.stored.stored_world import NOW_MS, StoredWorld
from tests.support.waiting import until

DAY_MS = 86_400_000
PRESENT = partition_of(NOW_MS, "day")  # 2023-11-14
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def stored() -> Iterator[StoredWorld]:
    with StoredWorld() as made:
        yield made


@pytest.fixture(scope="module")
def endpoints(stored: StoredWorld) -> Iterator[Endpoints]:
    world = flights_world(5, 50)
    with open_endpoints(world, stored=stored.source) as opened:
        yield opened
    world.close()


def endpoint(endpoints: Endpoints, user: str = DEFINING_USER, password: str = PASSWORD) -> MysqlPartitions:
    return MysqlPartitions("127.0.0.1", endpoints.mysql_port, user, lambda: password)


@pytest.fixture
def table(stored: StoredWorld, unique_name: str) -> str:
    """`shop.<name>`, by days, with the present one only."""
    return made(stored, f"t_{unique_name[-8:]}")


def made(
    stored: StoredWorld, name: str, *, kind: str = "timestamp", unit: PartitionUnit | None = "day"
) -> str:
    policy = None if unit is None else RangePartitions("at", unit, ahead=0, on_demand=False)
    columns = (StoredColumn("at", kind, nullable=False), StoredColumn("v", "int"))
    stored.catalogue.create_table(StoredTable(database="shop", name=name, columns=columns, partitions=policy))
    return name


def names(stored: StoredWorld, table: str) -> list[str]:
    return [part.name for part in stored.catalogue.table("shop", table).partitions]


def keeper(
    endpoints: Endpoints,
    stored: StoredWorld,
    table: str,
    opened: MysqlPartitions | None = None,
    *,
    kind: str = "DATETIME",
    **changes: object,
) -> PartitionRole:
    wanted = msgspec.structs.replace(SinkPartitions("unused:1", "at", ahead=2), **changes)
    loader = Loader(name="l", topic="t", database="shop", table=table)
    columns = (SchemaColumn("at", kind, is_nullable="No"), SchemaColumn("v", "INT"))

    def target() -> Target:
        return target_of(loader, TableSchema(properties=columns))

    session = (opened or endpoint(endpoints)).session
    return PartitionRole(loader, wanted, session, target, stored.clock, pause_max_s=0.05)


def test_what_a_endpoint_says_of_its_partitions(endpoints: Endpoints, table: str) -> None:
    with endpoint(endpoints).session() as session:
        assert session.partitions("shop", table) == (
            KnownPartition("p20231114", (PRESENT.start_ms, PRESENT.end_ms)),
        )
        session.add_partition("shop", table, partition_of(PRESENT.end_ms, "day"), has_time=True)
        session.add_partition("shop", table, partition_of(PRESENT.end_ms, "day"), has_time=False)
        assert [part.name for part in session.partitions("shop", table)] == ["p20231114", "p20231115"]


def test_errors_of_a_endpoint_are_told_apart(endpoints: Endpoints, table: str) -> None:
    with endpoint(endpoints).session() as session:
        with pytest.raises(Refused, match=r"cannot add partition p13 .* expected p20231115"):
            session.add_partition(
                "shop", table, PartitionRange(PRESENT.end_ms, PRESENT.end_ms + DAY_MS, "p13"), has_time=True
            )
        with pytest.raises(Refused, match="unknown table"):
            session.partitions("shop", "nobody")
        for wrong in ("a`b", "a b", ""):
            with pytest.raises(DefinitionError, match="not a name"):
                session.partitions("shop", wrong)
    with pytest.raises(Unauthorized), endpoint(endpoints, password="wrong").session():
        pytest.fail("let in with a wrong password")
    with endpoint(endpoints, user=USER).session() as session, pytest.raises(Unauthorized, match="define"):
        session.add_partition("shop", table, partition_of(PRESENT.end_ms, "day"), has_time=True)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(Unavailable), MysqlPartitions("127.0.0.1", port, "u", str).session():
        pytest.fail("nobody is there")


def test_a_endpoint_with_a_certificate_is_checked(stored: StoredWorld, table: str, tmp_path: Path) -> None:
    own = make_certificates(_folder(tmp_path / "own"))
    strangers = make_certificates(_folder(tmp_path / "strangers"), "stranger")
    context = load_context(own.certificate, own.key)
    world = flights_world(5, 50)
    with open_endpoints(world, context=context, require_tls=True, stored=stored.source) as secured:
        port = secured.mysql_port
        trusted = MysqlPartitions("127.0.0.1", port, DEFINING_USER, lambda: PASSWORD, ca_file=own.authority)
        with trusted.session() as session:
            assert session.partitions("shop", table)
        unknown = MysqlPartitions(
            "127.0.0.1", port, DEFINING_USER, lambda: PASSWORD, ca_file=strangers.authority
        )
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"), unknown.session():
            pytest.fail("a strange authority is trusted")
    world.close()


def test_tls_is_wanted_where_an_authority_is_named(endpoints: Endpoints, tmp_path: Path) -> None:
    own = make_certificates(_folder(tmp_path / "own"))
    plain = MysqlPartitions(
        "127.0.0.1", endpoints.mysql_port, DEFINING_USER, lambda: PASSWORD, ca_file=own.authority
    )
    with pytest.raises(Unavailable), plain.session():
        pytest.fail("the password went to an endpoint without TLS")


def test_partitions_around_now_are_made_once(endpoints: Endpoints, stored: StoredWorld, table: str) -> None:
    role = keeper(endpoints, stored, table, behind=1)
    assert role.status.state == "starting"
    assert role.run_once()
    assert names(stored, table) == ["p20231113", "p20231114", "p20231115", "p20231116"]
    found = role.status
    assert (found.state, found.last_error) == ("kept", "")
    assert (found.made, found.made_count) == (("p20231113", "p20231115", "p20231116"), 3)
    assert (found.until_ms, found.checked_ms) == (PRESENT.start_ms + 3 * DAY_MS, NOW_MS)
    assert role.run_once()
    assert role.status.made_count == 3
    stored.catalogue.drop_partition("shop", table, "p20231115")
    assert role.run_once()
    assert names(stored, table) == ["p20231113", "p20231114", "p20231115", "p20231116"]


@pytest.mark.parametrize(
    ("unit", "kind", "expected"),
    [
        ("hour", "timestamp", ["p2023111422", "p2023111423"]),
        ("day", "date", ["p20231114", "p20231115"]),
        ("week", "date", ["p20231113", "p20231120"]),
        ("month", "timestamp", ["p202311", "p202312"]),
        ("year", "timestamp", ["p2023", "p2024"]),
    ],
)
def test_every_unit_of_either_kind_of_column(
    endpoints: Endpoints,
    stored: StoredWorld,
    unique_name: str,
    unit: PartitionUnit,
    kind: str,
    expected: list[str],
) -> None:
    table = made(stored, f"u_{unique_name[-8:]}", kind=kind, unit=unit)
    written = "DATE" if kind == "date" else "DATETIME"
    assert keeper(endpoints, stored, table, kind=written, unit=unit, ahead=1).run_once()
    assert names(stored, table) == expected


def test_what_cannot_be_made_is_told_and_tried_again(
    endpoints: Endpoints, stored: StoredWorld, table: str, unique_name: str
) -> None:
    plain = made(stored, f"p_{unique_name[-8:]}", unit=None)
    for role, words in (
        (keeper(endpoints, stored, plain), "expected a table that is partitioned"),
        (keeper(endpoints, stored, table, unit="month"), "is not one day"),
        (keeper(endpoints, stored, table, column="when"), "no such column"),
        (keeper(endpoints, stored, table, column="v"), "found int"),
        (keeper(endpoints, stored, table, kind="DATE", unit="hour"), "expected a column of times"),
        (keeper(endpoints, stored, "nobody"), "unknown table"),
        (keeper(endpoints, stored, table, endpoint(endpoints, password="wrong")), "ccess denied"),
    ):
        assert not role.run_once()
        assert role.status.state == "failing"
        assert words in role.status.last_error
        assert role.status.checked_ms is None
    assert names(stored, table) == ["p20231114"]


def test_one_that_is_refused_hinders_no_other(endpoints: Endpoints, stored: StoredWorld, table: str) -> None:
    role = keeper(endpoints, stored, table, behind=1)
    part = partition_of(PRESENT.start_ms - 1, "day")
    stored.nodes.away.update(("n1", "n2", "n3"))
    try:
        assert role.run_once(), "nodes are told later what they have missed"
        stored.catalogue.drop_partition("shop", table, part.name)
        assert not role.run_once()
    finally:
        stored.nodes.away.clear()
    assert f"partition {part.name} of shop.{table} is still being dropped" in role.status.last_error
    assert names(stored, table) == ["p20231114", "p20231115", "p20231116"]
    assert role.status.until_ms == PRESENT.start_ms + 3 * DAY_MS
    stored.catalogue.settle()
    assert role.run_once()
    assert part.name in names(stored, table)


def test_rows_wait_for_the_first_round_and_a_failing_one_is_repeated(
    endpoints: Endpoints, stored: StoredWorld, table: str
) -> None:
    passwords = iter(["wrong", "wrong"])
    opened = MysqlPartitions(
        "127.0.0.1", endpoints.mysql_port, DEFINING_USER, lambda: next(passwords, PASSWORD)
    )
    role = keeper(endpoints, stored, table, opened)
    stopping = threading.Event()
    running = threading.Thread(target=role.run, args=(stopping,), daemon=True)
    running.start()
    try:
        role.wait_first(stopping, TIMEOUT_S)
        until(lambda: role.status.state == "kept", timeout_s=TIMEOUT_S)
        assert names(stored, table) == ["p20231114", "p20231115", "p20231116"]
    finally:
        stopping.set()
        running.join(TIMEOUT_S)
    assert not running.is_alive()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[types: [DATEV2]; keys: [2026-11-21]; ..types: [DATEV2]; keys: [2026-11-22]; )",
            (datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)),
        ),
        (
            "[types: [DATETIME]; keys: [2026-11-21 10:00:00]; "
            "..types: [DATETIME]; keys: [2026-11-21 11:00:00]; )",
            (datetime(2026, 11, 21, 10, tzinfo=UTC), datetime(2026, 11, 21, 11, tzinfo=UTC)),
        ),
        ("[types: [INT]; keys: [1]; ..types: [INT]; keys: [2]; )", None),
        ("None None", None),
    ],
)
def test_ranges_are_read_as_doris_writes_them(text: str, expected: tuple[datetime, datetime] | None) -> None:
    found = bounds_of(text)
    assert found == (None if expected is None else tuple(int(at.timestamp() * 1000) for at in expected))


def test_ranges_without_an_end_are_read_too() -> None:
    first = bounds_of("[types: [DATE]; keys: [0000-01-01]; ..types: [DATE]; keys: [2026-11-22]; )")
    assert first is not None
    assert first[0] < -(1 << 60)
    last = bounds_of("[types: [DATE]; keys: [2026-11-22]; ..types: [DATE]; keys: [MAXVALUE]; )")
    assert last is not None
    assert last[1] > 1 << 60


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
