"""Many writers and a view on real ZooKeeper, through lost sessions."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError
from rtolap.metadata import paths, segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ChangeLog
from rtolap.metadata.updates import read
from rtolap.metadata.view import SegmentView
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.cube import Cube
from rtolap.model.segment import SegmentRange
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.metadata_contract import eventually

pytestmark = pytest.mark.integration

SESSION_S = 2.0
WRITERS, SEGMENTS = 4, 15


def test_all_writers_get_through_and_the_view_sees_it_all(zookeeper: str, unique_name: str) -> None:
    stores = [
        ZooKeeperStore(zookeeper, root=f"/{unique_name}", session_timeout_s=SESSION_S)
        for _ in range(WRITERS + 1)
    ]
    try:
        watching = ClusterMetadata(stores[0], SystemClock())
        watching.create_cube(Cube(name="c", table="t", dimensions=()))
        view = SegmentView(watching, "c")
        failures: list[RtolapError] = []

        def write(partition: int) -> None:
            mine = ClusterMetadata(stores[partition + 1], SystemClock())
            try:
                for number in range(SEGMENTS):
                    mine.update_segment(
                        "c",
                        SegmentRange(number * 1000, (number + 1) * 1000),
                        lambda record: segments.close(record, {partition: 1}, now_ms=1, by="a writer"),
                    )
            except RtolapError as error:  # handed to the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=write, args=(partition,)) for partition in range(WRITERS)]
        for thread in threads:
            thread.start()
        thief = KazooClient(zookeeper, client_id=stores[0]._client.client_id, timeout=SESSION_S)
        thief.start()
        thief.stop()
        thief.close()
        for thread in threads:
            thread.join(60)
        assert failures == []
        complete = dict.fromkeys(range(WRITERS), 1)
        assert view.wait_for(
            lambda _, records: (
                len(records) == SEGMENTS and all(record.target == complete for record in records.values())
            ),
            20,
        )
        eventually(stores[0].connected, "a new session")
        view.refresh()
        assert view.records() == watching.segments("c")
        view.close()
    finally:
        for store in stores:
            store.close()


def test_a_killed_server_neither_loses_nor_repeats_a_change(
    zookeeper_server: ManagedProcess, unique_name: str
) -> None:
    store = ZooKeeperStore(zookeeper_server.address, root=f"/{unique_name}", session_timeout_s=5.0)
    try:
        metadata = ClusterMetadata(store, SystemClock())
        metadata.create_cube(Cube(name="c", table="t", dimensions=()))
        done = 0
        enough = threading.Event()
        failures: list[RtolapError] = []

        def write() -> None:
            nonlocal done
            try:
                while not enough.is_set():
                    metadata.update_segment(
                        "c",
                        SegmentRange(done * 1000, (done + 1) * 1000),
                        lambda record: segments.close(record, {0: 1}, now_ms=1, by="the writer"),
                    )
                    done += 1
            except RtolapError as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(2):
            before = done
            eventually(lambda before=before: done > before + 20 or bool(failures), "it writes")
            zookeeper_server.kill()
            zookeeper_server.start()
        before = done
        eventually(lambda: done > before + 20 or bool(failures), "it writes again")
        enough.set()
        writer.join(30)
        assert failures == []
        found = metadata.segments("c")
        assert len(found) == done
        assert {len(record.state_history) for record in found.values()} == {1}
        changes = read(store, paths.cube_changes("c"), ChangeLog)
        assert changes is not None
        assert changes.sequence == done, "each change once"
    finally:
        store.close()
