"""Pages, pieces and vectors on real ZooKeeper and a real object store, while the server is killed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError
from rtolap.metadata import paths, segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.metadata.signed import SignedStore
from rtolap.metadata.view import SegmentView
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.cube import Cube
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentRange, SegmentState, StagedPart
from rtolap.object_store.store import open_store
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.metadata_contract import eventually

pytestmark = pytest.mark.integration

SETS, PARTITIONS = 4, 8_000  # so many that a closing record goes on in pieces
EACH = PARTITIONS // SETS
TOKEN = "a-token-of-the-tests"


def window(number: int) -> SegmentRange:
    return SegmentRange(number * 1000, (number + 1) * 1000)


def settle(metadata: ClusterMetadata, number: int) -> None:
    """Do what replica sets, Spark and the coordinator do of one segment. Each step can be repeated."""
    vector = {p: number * 100 + p % 7 for p in range(PARTITIONS)}
    for at in range(SETS):
        mine = {p: vector[p] for p in range(at * EACH, (at + 1) * EACH)}
        metadata.update_segment(
            "c", window(number), lambda r, mine=mine: segments.close(r, mine, now_ms=1, by="x")
        )  # type: ignore[misc]
    for at in range(SETS):
        ranges = tuple(PartRange(p, 0, vector[p]) for p in range(at * EACH, (at + 1) * EACH))
        part = StagedPart(f"rs{at}", f"staged/{number}/{at}", ranges, rows=1, events=2, bytes=3)

        def staged(record: SegmentRecord, part: StagedPart = part) -> SegmentRecord:
            first = dict.fromkeys(vector, 0)
            return segments.add_part(record, part, partitions=vector, first=first, now_ms=1)

        metadata.update_segment("c", window(number), staged)
    build = BuildAttempt(f"b{number}", 1, 1, f"history/c/{window(number).name}/v1-b{number}")
    metadata.update_segment("c", window(number), lambda r: segments.start_build(r, build))
    metadata.update_segment(
        "c", window(number), lambda r: segments.promote(r, build.build_id, events=8, now_ms=1)
    )


def test_a_killed_server_leaves_every_segment_in_one_place_with_its_vectors(
    zookeeper_server: ManagedProcess, unique_name: str, tmp_path: Path
) -> None:
    files = open_store(tmp_path.as_uri())
    stores = [
        SignedStore(
            ZooKeeperStore(zookeeper_server.address, root=f"/{unique_name}", session_timeout_s=5.0), TOKEN
        )
        for _ in range(2)
    ]
    writing, watching = (ClusterMetadata(store, SystemClock(), files) for store in stores)
    try:
        writing.create_cube(Cube(name="c", table="t", dimensions=()))
        view = SegmentView(watching, "c", by_page=True, with_frontier=True)
        done = 0
        enough = threading.Event()
        failures: list[RtolapError] = []

        def write() -> None:
            nonlocal done
            try:
                while not enough.is_set():
                    settle(writing, done)
                    done += 1
            except RtolapError as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(2):
            before = done
            eventually(lambda before=before: done > before or bool(failures), "it settles segments")
            zookeeper_server.kill()
            zookeeper_server.start()
        before = done
        eventually(lambda: done > before or bool(failures), "it goes on")
        enough.set()
        writer.join(120)
        assert failures == []
        view.refresh()
        assert view.known()[1].open == {}
        found = view.records()
        assert list(found) == [window(number).name for number in range(done)]
        for number, record in enumerate(found.values()):
            whole = watching.whole_segment(record)
            assert (whole.state, whole.version) == (SegmentState.READY, 1)
            assert whole.covered == {p: number * 100 + p % 7 for p in range(PARTITIONS)}
        assert view.known()[1].frontier.covered == {p: (done - 1) * 100 + p % 7 for p in range(PARTITIONS)}
        assert watching.store.children(paths.closing("c")) == ()
        assert stores[0].refused_records == stores[1].refused_records == 0
        view.close()
    finally:
        for store in stores:
            store.close()
