"""A cube whose records in ZooKeeper are forged or damaged is not taken for one that was dropped: a receiver
keeps what it has of it, and others are served."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from rtolap.cubes.receiver import process, served_cubes
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata import paths
from rtolap.metadata.store import Put

from tests.support.cubes.builders import small_schema
from tests.support.cubes.metadata_contract import eventually
from tests.support.runs.served_receiver import ServedReceiver
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryConnections

SCHEMA = small_schema()
CUBES = ("a", "b", "c", "d")  # the last one is assigned after the fault
EVENTS = 500
START_MS = 1_356_998_400_000


def send(broker: MemoryBroker) -> None:
    for at in range(EVENTS):
        event = {"ts": START_MS + at, "kind": f"k{at}", "place": at, "amount": at, "price": "1.5"}
        broker.append(SCHEMA.table.topic, OutRecord(msgspec.json.encode(event), partition=0))


def counted(receiver: ServedReceiver) -> dict[str, int]:
    return {
        cube.cube: sum(partition.events for partition in cube.partitions)
        for cube in receiver.service.stats().cubes
    }


def spoiled(rng: random.Random, receiver: ServedReceiver, path: str, *, signed: bool) -> bytes:
    """Have somebody else change a record. Returns what it said."""
    node = receiver.metadata.store.get(path)
    assert node is not None
    before = receiver.ensemble.nodes[path].data
    damaged = [b"{", b"[]", rng.randbytes(40), before[: rng.randrange(1, 9)]]
    data = rng.choice([*damaged, before, before + b" "] if signed else damaged)
    receiver.sessions[0].commit([Put(path, data, node.version)])
    return node.data


@pytest.mark.parametrize("seed", range(16))
def test_what_a_receiver_has_of_it_stays_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(served_cubes, "START_RETRY_S", 0.05)
    monkeypatch.setattr(process, "CONTROL_EVERY_S", 0.02)
    rng, signed = random.Random(seed), seed % 2 == 1
    broker = MemoryBroker()
    cubes = [msgspec.structs.replace(SCHEMA.cube, name=name) for name in CUBES]
    receiver = ServedReceiver(tmp_path, broker, MemoryConnections(broker), SCHEMA.table, cubes, signed=signed)
    try:
        send(broker)
        *first, last = CUBES
        for name in first:
            receiver.assign(name, "left")
        eventually(lambda: counted(receiver) == dict.fromkeys(first, EVENTS), "all is read")
        cube = rng.choice(first)
        receiver.service.checkpoint(cube)
        folder = receiver.data_dir / "cubes" / cube
        kept = sorted(path.name for path in folder.rglob("*") if path.is_dir())
        path = rng.choice([paths.cube_definition, paths.cube_control, paths.cube_changes])(cube)
        said = spoiled(rng, receiver, path, signed=signed)
        send(broker)
        receiver.assign(last, "left")  # once it is served, the receiver has looked at all cubes
        others = dict.fromkeys({*CUBES} - {cube}, 2 * EVENTS)
        eventually(lambda: others.items() <= counted(receiver).items(), f"others are served: {path}")
        assert cube in receiver.service.cubes.served(), path
        assert sorted(path.name for path in folder.rglob("*") if path.is_dir()) == kept, path
        receiver.service.stop()
        receiver.start()
        eventually(lambda: others.items() <= counted(receiver).items(), f"and after a start: {path}")
        assert sorted(path.name for path in folder.rglob("*") if path.is_dir()) == kept, path
        version = receiver.ensemble.nodes[path].version
        receiver.metadata.store.commit([Put(path, said, version)])
        everything = dict.fromkeys(CUBES, 2 * EVENTS)
        eventually(lambda: counted(receiver) == everything, f"it goes on once its record is back: {path}")
    finally:
        receiver.close()
