"""Large reads of history on a real Spark Connect service: answers of the other engine, or named errors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Corrupted, QueryError, QueryInterrupted, QueryTimeout, RtolapError, Unavailable
from rtolap.cubes.format.manifest import MANIFEST_NAME, HistoryManifest, decode
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import smallest_covering
from rtolap.model.predicate import And, Compare, Or, Predicate
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.query.approval.nodes import CHAIN_MAX
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.cubes.history import EmbeddedHistory
from rtolap.query.engine_choice import EngineRules
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.plan import CubeRead, ReadStats
from rtolap.query.spark import connections
from rtolap.query.spark.scans import SparkScans
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.hostile.damage import change_bit, change_unnoticed
from tests.support.query.moving_history import MovingHistory
from tests.support.query.on_spark.drawn_reads import difference, drawn_history, drawn_read
from tests.support.query.on_spark.spark_asking import (
    NO_RESULTS,
    RESULT_BYTES_MAX,
    SQL,
    TIMEOUT_MS,
    Asked,
    scanning,
    scans_of,
)
from tests.support.query.on_spark.spark_connect import SparkServer, occupied, spark_server
from tests.support.query.oracles.sql_oracle import rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.query.random_sql import random_statement
from tests.support.seeds import so_many
from tests.support.waiting import until

pytestmark = pytest.mark.integration
SEED_OF_NEGATIVE_ZEROS = 50  # conditions on 0.0 over a file that has -0.0 alone
READS = 10  # of one drawn history
STATEMENTS = 20  # of a test: so many seeds, from its first one on


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    with spark_server(tmp_path_factory.mktemp("spark")) as server:
        yield server


@pytest.fixture(scope="module")
def world() -> Iterator[QueryWorld]:
    with closing(flights_world(7, 800)) as made:
        yield made


@pytest.fixture(scope="module")
def scans(world: QueryWorld, spark: SparkServer) -> SparkScans:
    return scans_of(world, spark)


@pytest.fixture(scope="module")
def service(world: QueryWorld, scans: SparkScans) -> Iterator[QueryService]:
    with scanning(world, scans) as made:
        yield made


class Both:
    """One history, read by both engines."""

    def __init__(self, store: ObjectStore, spark: SparkServer, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self.scans = SparkScans(store, spark.service, RESULT_BYTES_MAX)
        self._local = EmbeddedHistory(store, None, NO_RESULTS)
        self._spark = EmbeddedHistory(store, None, NO_RESULTS, self.scans, EngineRules(has_spark=True))

    def local(self, read: CubeRead, segments: Sequence[SegmentRecord]) -> pa.Table:
        ending = Cancellation(self._timeouts, TIMEOUT_MS)
        table = self._local.read(read, segments, ReadStats(read.cube), ending, MemoryBudget().account(""))
        assert isinstance(table, pa.Table)
        return table

    def spark(self, read: CubeRead, segments: Sequence[SegmentRecord]) -> pa.Table:
        stats = ReadStats(read.cube)
        ending = Cancellation(self._timeouts, TIMEOUT_MS, "", "spark")
        table = self._spark.read(read, segments, stats, ending, MemoryBudget().account(""))
        assert isinstance(table, pa.Table)
        assert stats.engine == "spark"
        return table

    def close(self) -> None:
        self._local.close()
        self._spark.close()


@pytest.fixture(scope="module")
def timeouts() -> Iterator[Timeouts]:
    with closing(Timeouts(SystemClock())) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    made = open_store((tmp_path / "ein Stück 50%").as_uri())
    made.claim()
    return made


@pytest.fixture
def both(store: ObjectStore, spark: SparkServer, timeouts: Timeouts) -> Iterator[Both]:
    with closing(Both(store, spark, timeouts)) as made:
        yield made


@pytest.mark.seeded
@pytest.mark.parametrize("seed", dict.fromkeys((*range(so_many(2, 10)), SEED_OF_NEGATIVE_ZEROS)))
def test_drawn_filters_groups_and_aggregates_give_the_same_partials_on_both_engines(
    store: ObjectStore, both: Both, seed: int
) -> None:
    rng = random.Random(seed)
    segments = drawn_history(rng, store, f"s{seed}")
    for number in range(READS):
        read = drawn_read(rng)
        found = difference(read, both.spark(read, segments), both.local(read, segments))
        assert not found, f"read {number}: {found}: {read.filter}"


@pytest.mark.parametrize("join", [" or ", " and "])
def test_a_chain_of_as_many_terms_as_a_statement_may_have_is_answered_alike(
    world: QueryWorld, service: QueryService, join: str
) -> None:
    """A message of Spark may be nested a thousand levels deep, and a term takes some."""
    chain = join.join(f"(carrier {'=' if join == ' or ' else '<>'} 'x{at}')" for at in range(CHAIN_MAX - 1))
    sql = f"select carrier, count(*) from flights where {chain} or carrier = 'AA' group by carrier"
    with closing(world.service(bounds=NO_RESULTS)) as local:
        assert answered(service, sql) == answered(local, sql)


DEEP = 34  # not far from what the grammar takes


def nested(levels: int) -> str:
    """Return a condition of AND in OR in AND, so many levels deep, that holds for one carrier."""
    condition = "carrier = 'AA'"
    for level in range(levels):
        joined = (f"carrier <> 'x{level}' and", f"carrier = 'x{level}' or")[level % 2]
        condition = f"{joined} ({condition})"
    return condition


@pytest.mark.parametrize("levels", [5, 20, DEEP])
def test_conditions_within_each_other_are_answered_alike(
    world: QueryWorld, service: QueryService, levels: int
) -> None:
    sql = "select carrier, count(*) from flights where {} group by carrier"
    with closing(world.service(bounds=NO_RESULTS)) as local:
        wanted = answered(local, sql.format("carrier = 'AA'"))
    assert wanted
    assert answered(service, sql.format(nested(levels))) == wanted


def test_a_service_of_another_version_is_refused_by_name_and_the_local_engine_reads_on(
    spark: SparkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(flights_world(13, 40)) as world, closing(world.service()) as local:
        wanted = rows_of(local.execute(SQL).table())
        monkeypatch.setattr(connections, "CLIENT_VERSION", "3.5.1")
        with scanning(world, scans_of(world, spark)) as service:
            with pytest.raises(Unavailable, match=r"another version of Spark; expected 3\.5"):
                service.execute(SQL)
            monkeypatch.undo()
            assert rows_of(service.execute(SQL).table()) == wanted


def test_a_condition_that_is_too_deep_for_a_message_of_spark_is_refused_by_name(
    store: ObjectStore, both: Both
) -> None:
    """Statements come near it; what else puts conditions together may pass it."""
    deep: Predicate = Compare("gate", "eq", 1)
    for number in range(60):
        deep = (And if number % 2 else Or)((Compare("gate", "ne", number), deep))
    segments = drawn_history(random.Random(1), store, "deep")
    read = replace(drawn_read(random.Random(1)), filter=deep)
    with pytest.raises(QueryError, match="nested too deep for Spark"):
        both.spark(read, segments)


def explained(service: QueryService, sql: str) -> dict[str, str]:
    return {row["item"]: row["value"] for row in service.execute(sql).table().to_pylist()}


def test_a_group_by_over_history_and_live_events_is_answered_by_spark(
    world: QueryWorld, service: QueryService
) -> None:
    sql = "select carrier, count(*), avg(price), count(distinct passenger) from flights group by carrier"
    with closing(world.service()) as local:
        expected = sorted(map(repr, local.execute(sql).table().to_pylist()))
    outcome = service.execute(sql)
    assert sorted(map(repr, outcome.table().to_pylist())) == expected
    assert [done.engine for done in outcome.stats] == ["spark"]
    done = explained(service, f"explain analyze {sql}")
    assert done["history read by"].startswith("spark: ")
    assert "RTOLAP_HISTORY_SPARK_BYTES_MIN" in done["history read by"]


@pytest.mark.seeded
@pytest.mark.parametrize("first", range(0, so_many(20, 100), STATEMENTS))
def test_random_statements_are_answered_alike_by_both_engines(
    world: QueryWorld, service: QueryService, first: int
) -> None:
    with closing(world.service(bounds=NO_RESULTS)) as local:
        for seed in range(first, first + STATEMENTS):
            sql = random_statement(random.Random(seed)).plain
            found, wanted = answered(service, sql), answered(local, sql)
            assert found == wanted, f"seed {seed}: {sql}"


def answered(service: QueryService, sql: str) -> object:
    """Return the rows, or the kind of error."""
    try:
        return rows_of(service.execute(sql).table())
    except RtolapError as error:
        return type(error)


def test_a_killed_or_timed_out_statement_ends_its_job_in_spark(
    spark: SparkServer, world: QueryWorld, service: QueryService, scans: SparkScans
) -> None:
    with occupied(spark) as sleepers:
        killed, timed_out = Asked(service, SQL), Asked(service, f"{SQL} limit 9", 3_000)
        killed.waits_for_spark()
        assert killed.ending.progress.startswith("history on Spark: 0 of ")
        killed.ending.cancel("KILL")
        with pytest.raises(QueryInterrupted):
            killed.result()
        with pytest.raises(QueryTimeout):
            timed_out.result()
        # Tasks of scans that were not interrupted would wait as long as the sleepers sleep.
        until(lambda: scans.running == 0, "the end of the scans", timeout_s=60)
        assert sleepers.is_alive()
    with closing(world.service()) as local:
        assert rows_of(service.execute(SQL).table()) == rows_of(local.execute(SQL).table())


@pytest.mark.parametrize("change", ["promoted", "purged", "both"])
def test_versions_that_are_promoted_and_purged_in_mid_scan_leave_the_answer_exact(
    spark: SparkServer, change: str
) -> None:
    with closing(flights_world(11, 300)) as world, scanning(world, scans_of(world, spark)) as service:
        world.store.claim()
        history = MovingHistory(world)
        service.execute(SQL).table()  # so that no file has to be compared any more
        before = len(world.asked)
        with occupied(spark):
            asked = Asked(service, SQL)
            asked.waits_for_spark()
            if change != "purged":
                history.promote(segments=100)
            if change != "promoted":
                history.purge()
                history.purge()
        rows = asked.result()
        with closing(world.service()) as local:
            assert rows == rows_of(local.execute(SQL).table())
        assert len(world.asked) > before + 4  # receivers too, by the new snapshot


def test_a_horizon_that_moves_in_mid_scan_while_files_stay_leaves_one_moments_answer(
    spark: SparkServer,
) -> None:
    with closing(flights_world(13, 300)) as world, scanning(world, scans_of(world, spark)) as service:
        world.store.claim()
        wanted = rows_of(service.execute(SQL).table())
        with occupied(spark):
            asked = Asked(service, SQL)
            asked.waits_for_spark()
            MovingHistory(world).purge(with_files=False)
        assert asked.result() == wanted
        with closing(world.service()) as local:
            purged = rows_of(local.execute(SQL).table())
        assert purged != wanted
        assert rows_of(service.execute(SQL).table()) == purged


def test_a_missing_and_a_damaged_file_are_named(spark: SparkServer) -> None:
    with closing(flights_world(12, 300)) as world, scanning(world, scans_of(world, spark)) as service:
        with closing(world.service()) as local:
            wanted = rows_of(local.execute(SQL).table())
        first, second = sorted(world.built["flights"])[:2]
        damaged = first_file(world, first)
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:-20] + bytes(20))
        with pytest.raises(Corrupted, match=rf"{first}.*sha256"):
            service.execute(SQL).table()
        damaged.write_bytes(whole)
        assert rows_of(service.execute(SQL).table()) == wanted
        damaged.write_bytes(whole[:-20] + bytes(20))  # behind the back of a service that has compared it
        with pytest.raises(Corrupted, match=rf"{first}.*sha256"):
            service.execute(SQL).table()
        damaged.write_bytes(whole)
        assert rows_of(service.execute(SQL).table()) == wanted
        place = change_unnoticed(damaged, "__rows")
        with pytest.raises(Corrupted, match=rf"{first}.*sha256"):
            service.execute(SQL).table()
        change_bit(damaged, *place)
        first_file(world, second).unlink()
        with pytest.raises(Corrupted, match="missing"):
            service.execute(SQL).table()


def first_file(world: QueryWorld, segment: str) -> Path:
    """Return a file with rows that SQL reads."""
    location = f"history/flights/{segment}/v1-test"
    path = f"{location}/{MANIFEST_NAME}"
    cuboid = smallest_covering(decode(world.store.read(path), HistoryManifest, path).cuboids, {"carrier"})
    assert cuboid is not None, "the base has every dimension"
    return Path(world.store.absolute(f"{location}/{next(file.name for file in cuboid.files if file.rows)}"))
