"""Five hostile users against every server of a cluster: nobody else is told wrong or kept waiting.

`make soak` has more of them, RTOLAP_HOSTILE_SEED asks for others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest
from rtolap.query.workers.pool import bound_bytes

from tests.support.hostile.hostile_texts import GREEDY
from tests.support.hostile.hostile_world import MEMORY_MB, PLAIN, HostileWorld
from tests.support.hostile.process_memory import private_bytes_of_children, watched
from tests.support.hostile.well_behaved import WellBehaved
from tests.support.seeds import so_many
from tests.support.waiting import SLOWNESS

pytestmark = [pytest.mark.integration]
INPUTS = so_many(3_000)  # of each server
SEED = int(os.environ.get("RTOLAP_HOSTILE_SEED", "1"))
STEPS_BEFORE = 100
P99_S_MAX, SLOWER_MAX = 1.0, 10.0
# Their sum is looked at every 50 ms: between two looks it may go beyond its bound. A busy machine looks
# later.
WORKERS_OVER = 2 * max(1.0, SLOWNESS / 2)
MIB = 1 << 20
GROWTH_BYTES_MAX = {
    "coordinator-0": 256 * MIB,
    "r1": 256 * MIB,
    "query": 768 * MIB,
    "agent": 128 * MIB,
    "endpoint-0": 512 * MIB,
    "node-0": 512 * MIB,
}


@pytest.fixture
def world(
    module_folder: Path, zookeeper: str, kafka: str, create_topic: Callable[..., str]
) -> Iterator[HostileWorld]:
    with HostileWorld(module_folder / "hostile", zookeeper, kafka, create_topic) as made:
        made.start()
        yield made


@pytest.mark.seeded
def test_hostile_users_take_nothing_from_anybody(world: HostileWorld) -> None:
    definitions = world.definitions()
    with WellBehaved(world) as client:
        for _ in range(STEPS_BEFORE):
            client.step()
        before_s = {kind: client.p99_s(kind) for kind in client.latencies_s}
        client.forget()
        processes = {name: watched(pid) for name, pid in world.pids().items()}
        query_pid = processes["query"].pid
        at_rest_bytes = workers_bytes = private_bytes_of_children(query_pid)
        attack = world.attack(world.hostile_users(INPUTS, SEED))
        try:
            while attack.goes_on():
                client.step()
                workers_bytes = max(workers_bytes, private_bytes_of_children(query_pid))
        finally:
            attack.close()
        taken = attack.taken()
        with (
            world.mysql(PLAIN) as connection,
            connection.cursor() as cursor,
            pytest.raises(pymysql.err.OperationalError, match="more memory than it may have"),
        ):
            cursor.execute(GREEDY["nested REPLACE"])
        client.step()
        during_s = {kind: client.p99_s(kind) for kind in client.latencies_s}
        asked = {kind: len(found) for kind, found in client.latencies_s.items()}
    print(f"taken: {dict(taken)} in {attack.lasted_s:.0f} s; asked: {asked}")
    print("p99 before → during: ", {k: f"{before_s[k]:.3f} → {during_s[k]:.3f} s" for k in before_s})
    growth = {name: process.growth_bytes() for name, process in processes.items()}
    print("memory grew by: ", {name: f"{size / MIB:.0f} MiB" for name, size in growth.items()})
    ended = world.greedy_workers()
    print(f"workers: {ended:.0f} ended for what they took; private memory {at_rest_bytes / MIB:.0f} MiB")
    print(f"at rest, at most {workers_bytes / MIB:.0f} MiB")
    for server in (*GROWTH_BYTES_MAX, "query-mysql"):
        assert taken[server] >= INPUTS, (server, taken)
    for kind in ("http", "mysql"):
        assert during_s[kind] < max(P99_S_MAX, SLOWER_MAX * before_s[kind]), kind
    for name, limit in GROWTH_BYTES_MAX.items():
        assert growth[name] < limit, name
    assert workers_bytes < at_rest_bytes + WORKERS_OVER * bound_bytes(MEMORY_MB << 20)
    assert ended > 0
    assert world.definitions() == definitions
    assert not [*world.folder.rglob("*stolen*"), *Path.cwd().glob("*stolen*")]
    for name, log in world.logs().items():
        assert "Traceback" not in log, f"{name}: {log[log.index('Traceback') - 500 :][:3000]}"
