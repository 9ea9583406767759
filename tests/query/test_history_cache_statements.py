"""Statements over copies of history: the same answers as over the store, which is not asked for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rtolap.base.clock import SystemClock
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.cubes.history_files import HistoryFile, ParquetFooter, ParquetFooters
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.history_cache.folder import CacheFolder
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.history_cache.report import follow
from rtolap.query.spills.folder import Spills
from rtolap.query.statement_service import QueryService

from tests.support.cubes.watched_store import watched_store
from tests.support.query.query_world import QueryWorld
from tests.support.scrape import Scrape
from tests.support.twins.clock import ManualClock

CHANGES_WORLD = True

STATEMENTS = (
    "select carrier, count(*) n, sum(price) s from flights group by carrier order by carrier",
    "select day_start, count(*) n from flights group by day_start order by day_start",
    "select origin, count(distinct passenger) p from flights where gate = 1 group by origin order by origin",
    "select min(delay), max(price) from flights where ts >= '2013-01-02'",
)


class Asked:
    """The files that the store was asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, path: str) -> None:
        self.paths.append(path)


@pytest.fixture
def asked(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(world, "store", watched_store(Path(world.store.root), asked))
    return asked


@pytest.fixture
def cache(tmp_path: Path) -> HistoryCache:
    return HistoryCache(CacheFolder(tmp_path / "cache"))


@pytest.fixture
def keeper(world: QueryWorld, asked: Asked, cache: HistoryCache) -> Iterator[HistoryKeeper]:
    cluster = Cluster(world.metadata, SystemClock())
    made = HistoryKeeper(
        *(cache, world.store, cluster.snapshots, ManualClock(0)),
        bytes_max=1 << 30,
        bytes_per_s=1 << 30,
        disk_free_bytes_min=0,
        pause=lambda wait_s: None,
    )
    yield made
    made.close()
    cluster.close()


@pytest.fixture
def cached(world: QueryWorld, keeper: HistoryKeeper, cache: HistoryCache) -> Iterator[QueryService]:
    made = world.service(cache=cache)
    yield made
    made.close()


def place(keeper: HistoryKeeper) -> None:
    while keeper.round():
        pass


def explained(service: QueryService, sql: str) -> dict[str, str]:
    return {row["item"]: row["value"] for row in service.execute(sql).table().to_pylist()}


@pytest.mark.parametrize("sql", STATEMENTS)
def test_answers_are_the_same_and_the_store_is_not_asked(
    world: QueryWorld, cached: QueryService, keeper: HistoryKeeper, asked: Asked, sql: str
) -> None:
    plain = world.service()
    expected = plain.execute(sql).table()
    plain.close()
    place(keeper)
    asked.paths.clear()
    assert cached.execute(sql).table() == expected
    assert asked.paths == []


def test_explain_says_how_many_files_come_from_where(
    world: QueryWorld, cached: QueryService, keeper: HistoryKeeper
) -> None:
    sql = STATEMENTS[0]
    before = {explained(cached, f"explain {how} {sql}")["history files"] for how in ("", "analyze")}
    place(keeper)
    after = {explained(cached, f"explain {how} {sql}")["history files"] for how in ("", "analyze")}
    number = 2 * len(world.built["flights"])
    assert before == {f"0 cached, {number} from the object store"}
    assert after == {f"{number} cached, 0 from the object store"}


def test_part_of_a_cuboid_may_be_copied(
    world: QueryWorld, cached: QueryService, keeper: HistoryKeeper, cache: HistoryCache
) -> None:
    sql = STATEMENTS[0]
    place(keeper)
    expected = cached.execute(sql).table()
    for copy in Path(cache.folder.files.root).rglob("part-0.parquet"):
        copy.unlink()
    outcome = cached.execute(sql)
    assert outcome.table() == expected
    (stats,) = outcome.stats
    assert stats.files_cached == stats.files_remote == len(world.built["flights"])


def test_a_copy_overwritten_with_other_bytes_is_not_answered(
    cached: QueryService, keeper: HistoryKeeper, cache: HistoryCache
) -> None:
    sql = STATEMENTS[2]
    place(keeper)
    expected = cached.execute(sql).table()
    for copy in Path(cache.folder.files.root).rglob("*.parquet"):
        data = copy.read_bytes()
        copy.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    assert cached.execute(sql).table() == expected


@pytest.mark.parametrize("bounds", [MemoryBounds(), MemoryBounds(0, 0, 0, 1_000)], ids=["beside", "streamed"])
def test_rows_of_copies_before_one_that_fails_are_counted_once(
    world: QueryWorld,
    keeper: HistoryKeeper,
    cache: HistoryCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bounds: MemoryBounds,
) -> None:
    """A copy fails when rows of others were merged already, and some were spilled."""
    place(keeper)
    footers: list[str] = []
    footer = ParquetFooters.footer

    def fail_at_ninth(known: ParquetFooters, file: HistoryFile) -> ParquetFooter:
        if file.path.startswith(str(cache.folder.files.root)):
            footers.append(file.path)
            if len(footers) == 9:
                raise OSError("planted")
        return footer(known, file)

    monkeypatch.setattr(ParquetFooters, "footer", fail_at_ninth)
    with (
        closing(world.service()) as plain,
        closing(world.service(cache=cache, bounds=bounds, spills=Spills(tmp_path / "s", 0))) as service,
    ):
        expected = plain.execute(STATEMENTS[0]).table()
        assert service.execute(STATEMENTS[0]).table() == expected
    assert len(footers) >= 9


def test_metrics_tell_states_bytes_and_where_files_were_read(
    cached: QueryService, keeper: HistoryKeeper, world: QueryWorld
) -> None:
    follow(cached.metrics.registry, keeper)

    def page() -> Scrape:
        return Scrape(cached.metrics.registry.render()[0].decode())

    assert page()("rtolap_query_history_cache_state", state="starting") == 1
    cached.execute(STATEMENTS[0]).close()
    place(keeper)
    cached.execute(STATEMENTS[0]).close()
    found, number = page(), 2 * len(world.built["flights"])
    assert found("rtolap_query_history_cache_state", state="placed") == 1
    assert found("rtolap_query_history_cache_state") == 1
    assert found("rtolap_query_history_files_read_total", source="store") == number
    assert found("rtolap_query_history_files_read_total", source="cache") == number
    size = found("rtolap_query_history_cache_bytes", state="cached")
    assert 0 < size == found("rtolap_query_history_cache_copied_bytes_total")
    assert found("rtolap_query_history_cache_files", state="cached") > number
    assert found.labels("rtolap_query_history_cache_evicted_files_total", "reason") == {
        "age",
        "replaced",
        "damaged",
    }
