"""What one cube has on a disk that cannot be read costs this cube alone, and is named; others are served."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.cubes.receiver import process, served_cubes
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.kafka.interfaces import OutRecord

from tests.support.cubes.builders import small_schema
from tests.support.cubes.metadata_contract import eventually
from tests.support.hostile.lost_sectors import small_disk
from tests.support.runs.served_receiver import ServedReceiver
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryConnections

SCHEMA = small_schema()
CUBES = ("a", "b", "c")
EVENTS = 2_000
START_MS = 1_356_998_400_000


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedReceiver]:
    monkeypatch.setattr(served_cubes, "START_RETRY_S", 0.05)
    monkeypatch.setattr(process, "CONTROL_EVERY_S", 0.02)
    broker = MemoryBroker()
    cubes = [msgspec.structs.replace(SCHEMA.cube, name=name) for name in CUBES]
    receiver = ServedReceiver(tmp_path, broker, MemoryConnections(broker), SCHEMA.table, cubes)
    for at in range(EVENTS):
        event = {"ts": START_MS + at, "kind": f"k{at}", "place": at, "amount": at, "price": "1.5"}
        broker.append(SCHEMA.table.topic, OutRecord(msgspec.json.encode(event), partition=0))
    for name in CUBES:
        receiver.assign(name, "left")
    eventually(lambda: read_whole(receiver) == set(CUBES), "all is read")
    yield receiver
    receiver.close()


def read_whole(receiver: ServedReceiver) -> set[str]:
    return {
        cube.cube
        for cube in receiver.service.stats().cubes
        if sum(partition.events for partition in cube.partitions) == EVENTS
    }


def reason(receiver: ServedReceiver, cube: str) -> str:
    """Return why it is not read."""
    failed = {
        each.cube: each.reason
        for each in receiver.service.stats().cubes
        if each.state == ConsumerState.FAILED
    }
    return (receiver.service.cubes.not_started() | failed).get(cube, "")


def files_of(receiver: ServedReceiver, cube: str) -> list[Path]:
    folder = receiver.data_dir / "cubes" / cube
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


@pytest.mark.parametrize("seed", range(6))
def test_a_file_that_a_disk_cannot_read_stops_its_cube_alone(
    receiver: ServedReceiver, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    for name in CUBES:
        receiver.service.checkpoint(name)
    receiver.service.stop()
    cube, others = CUBES[seed % 3], set(CUBES) - {CUBES[seed % 3]}
    file = rng.choice(files_of(receiver, cube))
    with small_disk(tmp_path / "mounted") as disk:
        disk.lose(file, rng.choice((0.0, rng.random())))
        receiver.start()
        eventually(lambda: others <= read_whole(receiver), "the others are served")
        eventually(lambda: "cannot be read from its disk" in reason(receiver, cube), "it is named")
        assert file.name in reason(receiver, cube)
        assert "replays from Kafka" in reason(receiver, cube)


def test_a_folder_that_may_not_be_written_stops_its_cube_alone_until_it_may(
    receiver: ServedReceiver,
) -> None:
    receiver.service.stop()
    folder = receiver.data_dir / "cubes" / "b"
    folder.rename(folder.with_name("aside"))
    folder.write_bytes(b"no folder")
    receiver.start()
    eventually(lambda: read_whole(receiver) == {"a", "c"}, "the others are served")
    eventually(lambda: "is not started" in reason(receiver, "b"), "it is named")
    folder.unlink()
    folder.with_name("aside").rename(folder)
    eventually(lambda: read_whole(receiver) == set(CUBES), "it is served again")
    assert reason(receiver, "b") == ""
