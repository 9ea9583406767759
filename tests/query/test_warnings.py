"""What an answer does not show by itself stands in its warnings: refused records, estimates, idle cubes,
lost events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest
from rtolap.model.completeness import EventLoss
from rtolap.model.offsets import PartRange
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.query_world import QueryWorld

COUNT = "select count(*) from flights"


@pytest.fixture
def own_world() -> Iterator[QueryWorld]:
    """One that a test may change."""
    made = flights_world(3, 60)
    yield made
    made.close()


@pytest.fixture
def own_service(own_world: QueryWorld) -> Iterator[QueryService]:
    made = own_world.service()
    yield made
    made.close()


def warned(service: QueryService, sql: str) -> tuple[QueryWarning, ...]:
    outcome = service.execute(sql)
    outcome.close()
    return outcome.warnings


def codes(service: QueryService, sql: str) -> list[str]:
    return [warning.code for warning in warned(service, sql)]


def explained(service: QueryService, sql: str) -> list[tuple[str, str]]:
    return [(row["item"], row["value"]) for row in service.execute(sql).table().to_pylist()]


def test_an_exact_answer_of_a_whole_cube_has_no_warnings(service: QueryService) -> None:
    assert warned(service, "select carrier, count(*), count(distinct origin) from flights group by 1") == ()


def test_refused_records_are_told_with_their_number_and_reason(
    own_world: QueryWorld, own_service: QueryService
) -> None:
    own_world.refused = {0: {"wrong_type": 7}, 3: {"wrong_type": 4, "tombstone": 1}}
    (warning,) = warned(own_service, COUNT)
    assert (warning.code, warning.level) == ("records_refused", "Warning")
    assert "at least 12 records refused" in warning.message
    assert "wrong_type 11, as column price: expected decimal(10,2), found 1.23456" in warning.message
    assert "tombstone 1" in warning.message
    assert own_world.schema.table.dead_letter_topic in warning.message
    assert warned(own_service, "select count(*) from airlines") == (), "of the cubes that are read"


def test_refused_records_do_not_double_with_the_replicas(
    own_world: QueryWorld, own_service: QueryService
) -> None:
    own_world.refused = {0: {"wrong_type": 7}}
    for dead in ({"rs-a-1"}, {"rs-a-2"}):
        own_world.dead = dead
        assert "at least 7 records refused" in warned(own_service, COUNT)[0].message


def test_explain_says_what_was_refused_before_and_after_it_runs(
    own_world: QueryWorld, own_service: QueryService
) -> None:
    assert ("refused records", "none") in explained(own_service, f"explain {COUNT}")
    own_world.refused = {2: {"wrong_type": 5}}
    for kind in ("explain", "explain analyze"):
        rows = explained(own_service, f"{kind} {COUNT}")
        assert any(item == "refused records" and "wrong_type 5" in value for item, value in rows)
        assert any(item == "warning" and "at least 5 records" in value for item, value in rows)
        assert codes(own_service, f"{kind} {COUNT}") == ["records_refused"]


def test_a_distinct_count_out_of_sketches_says_so(service: QueryService) -> None:
    (warning,) = warned(service, "select carrier, count(distinct passenger) from flights group by 1")
    assert (warning.code, warning.level) == ("approximate", "Note")
    assert "COUNT(DISTINCT passenger) is approximate" in warning.message
    assert "1.6%" in warning.message
    assert "a measure count_distinct counts exactly" in warning.message
    assert codes(service, "select approx_count_distinct(passenger) from flights") == [], "asked for by name"
    twice = "select count(distinct passenger), count(distinct passenger) + 1 from flights"
    assert codes(service, twice) == ["approximate"]


def test_a_kept_rewrite_keeps_its_warnings(service: QueryService) -> None:
    sql = "select count(distinct passenger) from flights where carrier = 'AA'"
    before = service.rewrites
    assert [codes(service, sql) for _ in range(3)] == [["approximate"]] * 3
    assert service.rewrites == before + 1


def test_a_cube_that_was_never_enabled_warns_beside_its_zero() -> None:
    world = flights_world(4, 20)
    try:
        for cube in world.schemas:
            world.metadata.update_control(
                cube, lambda control: msgspec.structs.replace(control, enabled=False, assignment={})
            )
        service = world.service()
        outcome = service.execute("select count(*) n from flights where day_start >= '2100-01-01'")
        assert outcome.table().to_pylist() == [{"n": 0}]
        (warning,) = outcome.warnings
        assert warning.code == "not_enabled"
        assert "never enabled" in warning.message
        service.close()
    finally:
        world.close()


@pytest.mark.parametrize(("switch", "says"), [("enabled", "disabled"), ("paused", "paused")])
def test_a_cube_that_does_not_consume_says_so(own_world: QueryWorld, switch: str, says: str) -> None:
    own_world.metadata.update_control(
        "flights", lambda control: msgspec.structs.replace(control, **{switch: switch == "paused"})
    )
    service = own_world.service()
    (warning,) = warned(service, COUNT)
    service.close()
    assert warning.code == "not_consuming"
    assert says in warning.message


@pytest.mark.parametrize("where", ["losses", "version_losses"])
def test_a_statement_says_that_events_of_its_time_are_lost(own_world: QueryWorld, where: str) -> None:
    start_ms, end_ms = (round(datetime(2013, 1, day, tzinfo=UTC).timestamp() * 1000) for day in (1, 31))
    loss = EventLoss(
        ranges=(PartRange(2, 15, 40),),
        start_ms=start_ms,
        end_ms=end_ms,
        by="ada",
        reason="disk burnt",
        at_ms=end_ms,
    )
    own_world.metadata.update_control(
        "flights", lambda control: msgspec.structs.replace(control, **{where: (loss,)})
    )
    service = own_world.service()
    (warning,) = warned(service, COUNT)
    elsewhen = codes(service, f"{COUNT} where day_start >= '2014-01-01'")
    elsewhere = codes(service, "select count(*) from airlines")
    shown = dict(explained(service, f"explain {COUNT}"))
    service.close()
    assert (warning.code, warning.level) == ("events_lost", "Warning")
    assert "2013-01-01T00:00:00+00:00 to 2013-01-31T00:00:00+00:00" in warning.message
    assert "offsets 15–40 of partition 2" in warning.message
    assert "ada" in warning.message
    assert "disk burnt" in warning.message
    assert (elsewhen, elsewhere) == ([], [])
    assert warning.message in shown["warning"]


def test_a_loss_of_purged_segments_is_told_no_more(own_world: QueryWorld) -> None:
    loss = EventLoss(
        ranges=(PartRange(2, 15, 40),), start_ms=0, end_ms=1_000, by="ada", reason="disk burnt", at_ms=1_000
    )
    for horizon_ms, told in ((None, ["events_lost"]), (1_000, [])):
        changes = {"losses": (loss,), "horizon_ms": horizon_ms}
        own_world.metadata.update_control(
            "flights", lambda control, changes=changes: msgspec.structs.replace(control, **changes)
        )
        service = own_world.service()
        assert codes(service, COUNT) == told
        service.close()
