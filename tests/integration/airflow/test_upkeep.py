"""Purge, retention and cleanup by their DAGs: what is seen afterwards, and nothing more the second time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.clock import SystemClock
from rtolap.coordinator.purge import GRACE_MS
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_format.vectors import version_of_folder
from rtolap.object_store.store import open_store

from tests.support.hostile.cluster_store import store_of

pytestmark = pytest.mark.integration


@pytest.fixture
def metadata(airflow: Any) -> Iterator[ClusterMetadata]:
    store = store_of(airflow.around.settings)
    yield ClusterMetadata(store, SystemClock(), open_store(airflow.around.layout.store.as_uri()))
    store.close()


def purged(stream: Any) -> set[int]:
    return {day for day, info in stream.segments().items() if info.state == "PURGED"}


def answers_without(airflow: Any, stream: Any, *days: int) -> None:
    """SQL has left these days, and nothing else."""
    expected = stream.recount(without=frozenset(days))
    airflow.until("answer without purged days", lambda: True if stream.answer() == expected else None)


def test_retention_purges_by_the_cubes_own_time(airflow: Any, history: Any) -> None:
    stream, dag_id = history.stream, "rtolap_retention"
    run_id = airflow.run_dag(dag_id)
    assert airflow.coordinator.cube(stream.name).horizon_ms >= stream.start_ms(2)
    gone = purged(stream)
    assert {1} <= gone <= {1, 2}
    answers_without(airflow, stream, *gone)
    airflow.clear(dag_id, run_id, *((task["task_id"]) for task in airflow.tasks(dag_id, run_id)))
    airflow.until_run(dag_id, run_id)
    assert purged(stream) == gone


def test_purge_drops_what_ends_before_an_instant(airflow: Any, history: Any) -> None:
    stream, dag_id = history.stream, "rtolap_purge"
    for _ in range(2):
        airflow.run_dag(dag_id, cube=stream.name, before=stream.start(3))
        assert purged(stream) == {1, 2}
        assert airflow.coordinator.cube(stream.name).horizon_ms == stream.start_ms(3)
        answers_without(airflow, stream, 1, 2)


def test_cleanup_deletes_staged_files_at_once_and_history_after_the_grace_time(
    airflow: Any, backfill: Any, metadata: ClusterMetadata
) -> None:
    stream, dag_id = backfill.history.stream, "rtolap_cleanup"
    airflow.run_dag("rtolap_purge", cube=stream.name, before=stream.start(3))
    store: Path = airflow.around.layout.store
    cube_id = metadata.cube_id(stream.name)
    staged, history = (store / root / stream.name / cube_id for root in ("staged", "history"))

    def versions(day: int) -> list[str]:
        folders = [path.name for path in (history / stream.segment(day)).glob("v*")]
        data = [name for name in folders if version_of_folder(name) == name]
        beside = [name for name in folders if version_of_folder(name) in data and name not in data]
        assert len(folders) == len(data) + len(beside), "vectors go with their version"
        return sorted(name.partition("-")[0] for name in data)

    def happened(ago_ms: int) -> None:
        """As if the newest of what has happened to each segment were so long ago."""
        newest_ms = metadata.clock.now_ms() - ago_ms

        def shifted(record: SegmentRecord) -> SegmentRecord:
            by_ms = newest_ms - record.state_history[-1].at_ms
            state_history = tuple(
                msgspec.structs.replace(line, at_ms=line.at_ms + by_ms) for line in record.state_history
            )
            return msgspec.structs.replace(record, state_history=state_history)

        for info in stream.segments().values():
            segment = metadata.segment(stream.name, info.segment).range
            metadata.update_segment(stream.name, segment, shifted)

    happened(ago_ms=0)  # earlier tests may have taken longer than the grace time
    assert list(staged.rglob("*.parquet"))
    assert (versions(1), versions(3), versions(5)) == (["v1"], ["v1", "v2"], ["v1"])
    airflow.run_dag(dag_id)
    assert not list(staged.rglob("*.parquet"))
    assert (versions(1), versions(3), versions(5)) == (["v1"], ["v1", "v2"], ["v1"])  # readers may be at it

    happened(ago_ms=GRACE_MS)
    for _ in range(2):
        airflow.run_dag(dag_id)
        assert (versions(1), versions(3), versions(5)) == ([], ["v2"], ["v1"])
        assert set(stream.segments()) == {3, 4, 5, 6}
        answers_without(airflow, stream, 1, 2)
