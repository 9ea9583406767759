"""Receivers whose cluster was restored: what they hold on disk and in memory is of records that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.clock import SystemClock
from rtolap.cubes.receiver import process
from rtolap.cubes.receiver.assembly import CubeAssembly
from rtolap.cubes.receiver.local.slots import StateSlots
from rtolap.cubes.receiver.process import ReceiverService
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.object_store.store import open_store
from rtolap.servers.limits import HttpLimits

from tests.support.cubes.builders import small_schema
from tests.support.cubes.metadata_contract import eventually
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryConnections
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

SCHEMA = small_schema()
CUBE = SCHEMA.cube.name


def state_of(base: Path) -> list[str]:
    return sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())


def test_state_is_deleted_once_for_each_restore(tmp_path: Path) -> None:
    slots = StateSlots(tmp_path / "cube")
    slots.follow_restore("")
    slots.base.mkdir()
    slots.ahead(3).mkdir()
    (slots.base / "checkpoint.json").write_text("1")
    (slots.ahead(3) / "checkpoint.json").write_text("2")
    slots.follow_restore("")
    assert state_of(slots.base) == ["ahead-3/checkpoint.json", "checkpoint.json"], "never restored"
    for restored in ("first", "second", ""):
        slots.follow_restore(restored)
        assert state_of(slots.base) == ["restored"]
        (slots.base / "checkpoint.json").write_text("1")
        slots.follow_restore(restored)
        assert state_of(slots.base) == ["checkpoint.json", "restored"], "what it read since then stays"


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def metadata(clock: SystemClock) -> Iterator[ClusterMetadata]:
    session = MemoryStore(MemoryEnsemble())
    found = ClusterMetadata(session, clock)
    found.create_table(SCHEMA.table)
    found.create_cube(SCHEMA.cube)
    yield found
    session.close()


@pytest.fixture
def service(
    metadata: ClusterMetadata, clock: SystemClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ReceiverService]:
    monkeypatch.setattr(process, "CONTROL_EVERY_S", 0.02)
    broker = MemoryBroker()
    MemoryAdmin(broker).create_topic(SCHEMA.table.topic, 1)
    assert isinstance(metadata.store, MemoryStore)
    session = MemoryStore(metadata.store.ensemble)
    assembly = CubeAssembly(
        receiver_id="left-0",
        replica_set="left",
        token="a-token-of-this-test",
        data_dir=tmp_path / "data",
        metadata=ClusterMetadata(session, clock),
        store=open_store((tmp_path / "store").as_uri()),
        open_consumer=lambda *arguments, **options: MemoryConsumer(
            broker, SCHEMA.table.topic, with_create_ms=True
        ),
        connections=MemoryConnections(broker),
        clock=clock,
        settings=ReceiverSettings(disk_free_bytes_min=0),
    )
    running = ReceiverService(assembly, host="127.0.0.1", port=0, http_limits=HttpLimits())
    running.start()
    yield running
    running.stop()
    session.close()


def test_a_receiver_that_outlives_a_restore_begins_again(
    metadata: ClusterMetadata, service: ReceiverService, tmp_path: Path
) -> None:
    metadata.update_control(
        CUBE,
        lambda control: msgspec.structs.replace(
            control, enabled=True, assignment={"left": (0,)}, assignment_epoch=1, first_offsets={0: 0}
        ),
    )
    eventually(lambda: CUBE in service.cubes.served(), "it serves the cube")
    before = service.cubes.served()[CUBE]
    assert before.restored == ""
    metadata.update_control(CUBE, lambda control: msgspec.structs.replace(control, restored="again"))

    def begun_again() -> bool:
        now = service.cubes.served().get(CUBE)
        return now is not None and now is not before and now.restored == "again"

    eventually(begun_again, "it begins again")
    marker = tmp_path / "data" / "cubes" / CUBE / metadata.cube_id(CUBE) / "restored"
    assert marker.read_text() == "again"
