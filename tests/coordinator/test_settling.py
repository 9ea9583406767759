"""The leader moves records of earlier versions into pages; lists and single segments show what they did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import RtolapError
from rtolap.coordinator import settling
from rtolap.metadata import codec, paths
from rtolap.metadata.store import Create, Delete

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def ready(cluster: Cluster, hour: int) -> str:
    record = cluster.closed(hour)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    return record.name


def test_records_of_an_earlier_version_are_settled_by_the_leader_a_few_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "SETTLED_MAX", 2)
    cluster.enabled()
    before = {
        name: cluster.metadata.segment(NAME, name) for name in (ready(cluster, hour) for hour in (1, 2, 3))
    }
    waiting = cluster.closed(4)
    (page,) = cluster.metadata.nodes.page_ranges(NAME)
    cluster.store.commit([Delete(paths.history_page(NAME, page.name)), Delete(paths.frontier(NAME))])
    for name, record in before.items():  # as they were: in nodes of their own, their vectors inside
        assert record is not None
        old = msgspec.structs.replace(record, vectors=None)
        cluster.store.commit([Create(paths.segment(NAME, name), codec.encode(old))])
    cluster.coordinator._views.forget(NAME)
    left = []
    for _ in range(3):
        cluster.coordinator._check((NAME,))
        assert cluster.ensemble.settle()
        left.append(len(cluster.metadata.nodes.open_names(NAME)))
    assert left == [2, 1, 1], "what waits for its build stays open"
    for name, record in before.items():
        assert cluster.metadata.segment(NAME, name) == record
    assert {segment.segment: segment.state for segment in cluster.client.segments(NAME)} == {
        **dict.fromkeys(before, "READY"),
        waiting.name: "REMOTE_PERSISTED",
    }


def test_a_list_leaves_vectors_out_and_a_segment_shows_them(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 1)
    (listed,) = cluster.client.segments(NAME)
    shown = cluster.client.segment(NAME, name)
    assert (listed.state, listed.version, listed.covered) == ("READY", 1, {})
    assert shown.covered == {0: 100, 1: 110, 2: 120, 3: 130}


def test_vectors_that_are_lost_are_named_by_what_needs_them_and_the_segment_can_be_purged(
    cluster: Cluster,
) -> None:
    cluster.enabled()
    name = ready(cluster, 1)
    location = cluster.client.segment(NAME, name).location
    cluster.files.delete_tree(f"{location}-vectors")
    cluster.coordinator.metadata.nodes._vectors._known.clear()  # type: ignore[union-attr]
    with pytest.raises(RtolapError, match="restore the file from a backup"):
        cluster.client.requeue(NAME, name)
    assert cluster.client.segments(NAME)[0].state == "READY", "lists and statements go on"
    assert cluster.client.purge(NAME, 2 * HOUR_MS).segments == (name,)
