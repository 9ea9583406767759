"""Leadership of a replica set goes to a receiver that can close and upload, where the leader has failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError
from rtolap.cubes.receiver.assembly import CubeAssembly
from rtolap.cubes.receiver.process import GivingWay, ReceiverService
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import READING
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.object_store.store import open_store
from rtolap.servers.limits import HttpLimits

from tests.support.cubes.builders import small_schema
from tests.support.cubes.metadata_contract import eventually
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryConnections
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


class Candidate:
    """As one of two; both lead in turn."""

    def __init__(self) -> None:
        self.leads, self.alone, self.steps = True, False, 0

    def is_leader(self) -> bool:
        return self.leads

    def step_back(self) -> bool:
        if self.alone:
            return False
        self.leads, self.steps = False, self.steps + 1
        return True

    def fence(self) -> str | None:
        return None

    def node(self) -> str | None:
        return None

    def term(self) -> int | None:
        return None

    def leader(self) -> str | None:
        return None

    def close(self) -> None: ...


def test_it_steps_back_once_for_each_failure() -> None:
    candidate = Candidate()
    giving = GivingWay(candidate)
    giving.observe([])
    assert candidate.leads
    giving.observe(["sales"])
    assert not candidate.leads
    candidate.leads = True  # the other one has failed too
    giving.observe(["sales"])
    assert candidate.leads, "no better one is there"
    giving.observe(["sales", "visits"])
    assert candidate.steps == 2, "another failure"
    candidate.leads = True
    giving.observe(["visits"])
    assert candidate.leads
    giving.observe([])
    giving.observe(["visits"])
    assert candidate.steps == 3, "it had gone on in between"


def test_it_waits_for_another_one_to_be_there() -> None:
    candidate = Candidate()
    candidate.alone = True
    giving = GivingWay(candidate)
    giving.observe(["sales"])
    assert candidate.leads
    candidate.alone = False
    giving.observe(["sales"])
    assert not candidate.leads


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[list[ReceiverService]]:
    """Two of one replica set, with a cube; all on memory twins."""
    broker, ensemble, schema, clock = MemoryBroker(), MemoryEnsemble(), small_schema(), SystemClock()
    admin = MemoryAdmin(broker)
    admin.create_topic(schema.table.topic, 1)
    sessions = [MemoryStore(ensemble) for _ in range(3)]
    metadata = ClusterMetadata(sessions[2], clock)
    metadata.create_table(schema.table)
    metadata.create_cube(schema.cube)
    metadata.update_control(
        schema.cube.name,
        lambda control: msgspec.structs.replace(
            control, enabled=True, assignment={"left": (0,)}, assignment_epoch=1, first_offsets={0: 0}
        ),
    )
    services = []
    for number, session in enumerate(sessions[:2]):
        assembly = CubeAssembly(
            receiver_id=f"left-{number}",
            replica_set="left",
            token="a-token-of-this-test",
            data_dir=tmp_path / f"left-{number}",
            metadata=ClusterMetadata(session, clock),
            store=open_store((tmp_path / "store").as_uri()),
            open_consumer=lambda *arguments, **options: MemoryConsumer(
                broker, schema.table.topic, with_create_ms=True
            ),
            connections=MemoryConnections(broker),
            clock=clock,
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        service = ReceiverService(assembly, host="127.0.0.1", port=0, http_limits=HttpLimits())
        service.start()
        services.append(service)
        eventually(lambda service=service: bool(service.stats().cubes), "it serves the cube")
    yield services
    for service in services:
        service.stop()
    for session in sessions:
        session.close()


def test_a_follower_leads_when_the_leader_has_failed(receivers: list[ReceiverService]) -> None:
    first, second = receivers
    for service in receivers:
        core = service.cubes.runner("sales_by_kind").core
        eventually(lambda core=core: core.consumer_state in READING, "it reads")
    eventually(lambda: first.stats().cubes[0].is_leader, "the first leads")
    runner = first.cubes.runner("sales_by_kind")
    runner.ask(lambda: runner.core.fail(RtolapError("a disk of this test is gone")))
    eventually(lambda: second.stats().cubes[0].is_leader, "the second leads")
    assert not first.stats().cubes[0].is_leader
