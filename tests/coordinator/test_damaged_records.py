"""Damaged metadata of one cube stop what is done for this cube, and for no other."""

from __future__ import annotations

import random

import pytest
from rtolap.base.errors import Corrupted
from rtolap.metadata import paths
from rtolap.metadata.store import Put
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, TABLE, Cluster

DAMAGED, WHOLE = "a_cube", "b_cube"  # in the order of the coordinator's turns


def beat(cluster: Cluster, watermark_ms: int) -> None:
    report = CubeReport(
        state="CONSUMING",
        assignment_epoch=cluster.metadata.control(WHOLE).assignment_epoch,
        partitions={p: PartitionReport(position=500, watermark_ms=watermark_ms) for p in range(4)},
    )
    cluster.coordinator.heartbeat(
        HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes={DAMAGED: report, WHOLE: report})
    )


@pytest.mark.parametrize("seed", range(12))
def test_watermarks_and_checks_of_other_cubes_go_on(cluster: Cluster, seed: int) -> None:
    rng = random.Random(seed)
    cluster.receiver("r1", "rs1")
    cluster.client.create_table(TABLE)
    for name in (DAMAGED, WHOLE):
        cluster.client.create_cube({**CUBE, "name": name})
        cluster.client.enable_cube(name)
        cluster.closed(5, cube=name)
    beat(cluster, 10 * HOUR_MS)
    cluster.coordinator.tick()
    assert cluster.client.watermark(WHOLE).low_watermark_ms == 10 * HOUR_MS
    nodes = cluster.ensemble.nodes
    paths = sorted(path for path, node in nodes.items() if f"/{DAMAGED}" in path and node.data)
    path = rng.choice(paths)
    data = rng.choice([b"", b"{", b"[]", rng.randbytes(40), nodes[path].data[: rng.randrange(9)]])
    cluster.store.commit([Put(path, data, nodes[path].version)])
    for hour in (11, 12):
        beat(cluster, hour * HOUR_MS)
        cluster.coordinator.tick()
        assert cluster.client.watermark(WHOLE).low_watermark_ms == hour * HOUR_MS, path
        cluster.coordinator._check((DAMAGED, WHOLE))
        assert cluster.client.cube(WHOLE).problem is None, path
    assert WHOLE in [cube.name for cube in cluster.client.cubes()], path
    assert (WHOLE, "19700101050000_19700101060000") in [
        (queued.cube, queued.segment) for queued in cluster.client.queue().entries
    ], path


@pytest.mark.parametrize("name", [WHOLE, f"{WHOLE}_r2", f"{WHOLE}_r17"])
def test_no_cube_is_created_where_one_stands_whose_definition_is_damaged(cluster: Cluster, name: str) -> None:
    """A revision may have outlived the cube that it followed."""
    cluster.client.create_table(TABLE)
    cluster.client.create_cube({**CUBE, "name": name})
    path = paths.cube_definition(name)
    cluster.store.commit([Put(path, b"{", cluster.ensemble.nodes[path].version)])
    with pytest.raises(Corrupted, match=name):
        cluster.client.create_cube({**CUBE, "name": WHOLE})
    cluster.client.create_cube({**CUBE, "name": DAMAGED})
