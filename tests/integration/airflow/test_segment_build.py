"""From the queue to READY: the shipped DAG, a real coordinator, a real Spark build."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rtolap.base.clock import SystemClock
from rtolap.format.object_store import open_store
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ReceiverRecord, SegmentRecord, StagedPart
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.offsets import PartRange
from rtolap.model.segment import parse_segment_name
from rtolap.stack.components import COMPONENTS
from rtolap.stack.environment import HOST
from rtolap.stack.process import ManagedProcess
from rtolap.stack.secrets import read_secret
from rtolap.testing.staging import CUBE, SEGMENT, TABLE, Staging, raw_events
from rtolap.wire.coordinator_client import CoordinatorClient

pytestmark = pytest.mark.integration

PARTITION, EVENTS = 0, 300
RUNS = "/api/v2/dags/rtolap_segment_build/dagRuns"


@pytest.fixture
def coordinator(
    airflow: Any, zookeeper: str, kafka: str, create_topic: Callable[..., str]
) -> Iterator[CoordinatorClient]:
    """One that leads, with the cube of `testing.staging` enabled and one segment of it REMOTE_PERSISTED."""
    create_topic(TABLE.topic)
    around, root = airflow.around, "/airflow-it"
    env = {"RTOLAP_ZOOKEEPER": zookeeper, "RTOLAP_KAFKA": kafka, "RTOLAP_ZOOKEEPER_ROOT": root}
    spec = COMPONENTS["coordinator"].spec(around)
    process = ManagedProcess(replace(spec, env={**spec.env, **env}))
    store = ZooKeeperStore(zookeeper, root=root)
    url = f"http://{HOST}:{around.ports['coordinator']}"
    try:
        process.start()
        metadata = ClusterMetadata(store, SystemClock())
        metadata.register_receiver(ReceiverRecord("r0", HOST, 1, "rs-0"))
        metadata.announce_live("r0", "test")
        with CoordinatorClient([url], read_secret(around.layout, "token")) as client:
            client.create_table(msgspec.to_builtins(TABLE))
            client.create_cube(msgspec.to_builtins(CUBE))
            client.enable_cube(CUBE.name)
            stage_segment(metadata, around.settings["RTOLAP_OBJECT_STORE"], around.layout.store)
            yield client
    finally:
        process.stop()
        store.close()


def stage_segment(metadata: ClusterMetadata, uri: str, folder: Any) -> None:
    """What a receiver does when it closes and uploads."""
    staging = Staging(open_store(uri), uri, folder)
    ranges = PartRange(PARTITION, 0, EVENTS)
    part = staging.part(1, "rs-0", raw_events(1, PARTITION, 0, EVENTS), ranges)
    staged = StagedPart(part.replica_set, part.path, part.ranges, part.rows, part.events, 1)

    def persisted(record: SegmentRecord) -> SegmentRecord:
        now_ms = SystemClock().now_ms()
        closed = segments.close(record, {PARTITION: EVENTS}, now_ms=now_ms, by="rs-0")
        return segments.add_part(closed, staged, partitions=[PARTITION], first={PARTITION: 0}, now_ms=now_ms)

    metadata.update_segment(CUBE.name, parse_segment_name(SEGMENT), persisted)


def test_an_event_starts_a_build_and_clearing_it_does_not_build_twice(
    airflow: Any, coordinator: CoordinatorClient
) -> None:
    key = f"build.{CUBE.name}"

    def live() -> Any:
        if not airflow.agent.generation(key):
            return None
        return airflow.agent.get(key)

    process = airflow.until("build started by the queue's event", live, 90.0)
    assert process.argv[0] == "spark-submit"
    # The task waits in the triggerer; the run that the event started is the only one.
    runs = airflow.api.get(RUNS).raise_for_status().json()["dag_runs"]
    run_id = runs[0]["dag_run_id"]
    assert runs[0]["run_type"] == "asset_triggered"
    path = f"{RUNS}/{run_id}/taskInstances/build/0"
    airflow.until(
        "deferred build",
        lambda: True if airflow.api.get(path).json().get("state") == "deferred" else None,
    )
    body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "task_ids": [["build", 0]]}
    airflow.api.post("/api/v2/dags/rtolap_segment_build/clearTaskInstances", json=body).raise_for_status()

    def ready() -> Any:
        segment = coordinator.segment(CUBE.name, SEGMENT)
        return segment if segment.state == "READY" else None

    segment = airflow.until("READY segment", ready, 120.0)
    assert (segment.version, segment.events, segment.covered) == (1, EVENTS, {PARTITION: EVENTS})
    task = airflow.until(
        "end of the cleared task",
        lambda: found if (found := airflow.api.get(path).json())["state"] in ("success", "failed") else None,
    )
    assert (task["state"], task["try_number"]) == ("success", 2)
    assert airflow.agent.generation(key) == 1  # one process for two executions
    assert [line.event for line in segment.story].count("PROMOTE") == 1
    assert time.time() * 1000 > segment.story[-1].at_ms
