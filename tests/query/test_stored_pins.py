"""A statement reads one version of each table, whatever is loaded and compacted while it reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.base.errors import PinExpired, StaleSnapshot
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable
from rtolap.protocols.storage.messages import Pin
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.statement_service import QueryService
from rtolap.query.stored.reader import EXPIRED_MAX, VIEWS_MAX
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.node.pins import Pins

from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld
from tests.support.waiting import until

LEFT, RIGHT = TableName("shop", "lefts"), TableName("shop", "rights")
BUCKETS = 12  # more tablets than scans that run at once
ROWS = [{"id": at, "n": 1} for at in range(50)]
BOTH = (
    "select (select sum(n) from shop.lefts) l, (select sum(n) from shop.rights) r, count(*) c from shop.lefts"
)


@pytest.fixture
def stored() -> Iterator[StoredWorld]:
    """Two tables with the same rows, in which two files are compacted as soon as they are there."""
    with StoredWorld(replication=1, settings=TabletSettings(compaction_files_min=2)) as made:
        for name in (LEFT, RIGHT):
            made.catalogue.create_table(
                StoredTable(
                    database="shop",
                    name=name.name,
                    columns=(StoredColumn("id", "int"), StoredColumn("n", "int")),
                    keys=("id",),
                    buckets=Buckets(BUCKETS, ("id",)),
                )
            )
            made.load(name, ROWS)
        yield made


@pytest.fixture
def asked(world: QueryWorld, stored: StoredWorld) -> Iterator[QueryService]:
    service = world.service(stored=stored.source)
    yield service
    service.close()


def load_and_compact(stored: StoredWorld) -> None:
    for name in (LEFT, RIGHT):
        stored.load(name, ROWS)
        stored.compact(name)


def answer(asked: QueryService) -> tuple[int, int, int]:
    (row,) = asked.execute(BOTH).table().to_pylist()
    return int(row["l"]), int(row["r"]), int(row["c"])


def test_all_reads_of_a_statement_are_of_one_state_while_loads_and_compactions_go_on(
    asked: QueryService, stored: StoredWorld
) -> None:
    """A recount of the loads that had become visible when the statement began."""
    stored.source.before_scan = lambda node, request: load_and_compact(stored)
    for _ in range(3):
        loads = len(ROWS) * (stored._txn // 2)
        assert answer(asked) == (loads, loads, loads)
    until(lambda: not any(pins.count() for pins in stored.nodes.pins.values()), "all pins are given back")


def count_views(stored: StoredWorld) -> list[object]:
    """Return a list that gets an entry for each view that is taken."""
    views: list[object] = []
    read_view = stored.source.read_view

    def counted(names: object) -> object:
        views.append(names)
        return read_view(names)  # type: ignore[arg-type]

    stored.source.read_view = counted  # type: ignore[method-assign, assignment]
    return views


def pass_views(stored: StoredWorld, count: int) -> list[object]:
    """Let compaction pass so many views, each before its first pin; return the list of views."""
    views = count_views(stored)
    passed: list[int] = []

    def before_pin(node: str, request: object) -> None:
        if len(passed) < len(views) <= count:
            passed.append(len(views))
            load_and_compact(stored)

    stored.source.before_pin = before_pin
    return views


@pytest.mark.parametrize("count", [1, VIEWS_MAX - 1])
def test_a_view_that_compaction_has_passed_before_the_pin_is_taken_again(
    asked: QueryService, stored: StoredWorld, count: int
) -> None:
    views = pass_views(stored, count)
    assert answer(asked) == (len(ROWS) * (1 + count),) * 3
    assert len(views) == 1 + count


def test_views_that_compaction_always_passes_are_an_error(asked: QueryService, stored: StoredWorld) -> None:
    views = pass_views(stored, 1_000)
    with pytest.raises(StaleSnapshot, match="can no longer be read"):
        answer(asked)
    assert len(views) == VIEWS_MAX


def test_a_pin_that_has_expired_is_an_error_of_its_own_after_one_retry(
    asked: QueryService, stored: StoredWorld
) -> None:
    expired: list[str] = []

    def expire(node: str, request: object) -> None:
        expired.append(node)
        stored.nodes.pins[node].close()

    stored.source.before_scan = expire
    views = count_views(stored)
    with pytest.raises(PinExpired, match="no longer pinned"):
        answer(asked)
    assert len(views) == EXPIRED_MAX


def test_pins_are_kept_for_a_bounded_time(stored: StoredWorld) -> None:
    now_s = [0.0]
    ((node, tablet_id), tablet), *_ = (
        (key, each) for key, each in stored.nodes.tablets.items() if key[1].table == "lefts" and each.version
    )
    pins = Pins(lambda id: stored.nodes.tablet(node, id), keep_s_max=10, pins_max=1, now_s=lambda: now_s[0])
    version = tablet.version
    request = Pin("one", 60.0, ((tablet_id, version),))
    assert pins.pin(request).tablets == (tablet_id,)
    assert pins.pin(Pin("two", 60.0, ((tablet_id, version),))).tablets == (), "too many statements"
    load_and_compact(stored)
    assert tablet.status().floor > version
    rows = [row for batch in pins.snapshot("one", tablet_id).read() for row in batch.to_pylist()]
    assert rows
    now_s[0] = 10.0
    assert pins.expire() == 1
    with pytest.raises(PinExpired):
        pins.snapshot("one", tablet_id)
    assert pins.pin(request).tablets == (), "compaction has passed it"
    pins.close()
