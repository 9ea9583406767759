"""A core whose log ends are looked up beside it never asks for them itself, and still tells the present."""

from __future__ import annotations

from pathlib import Path

from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.metadata.records import CubeControl

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer


def test_a_core_leaves_the_log_ends_to_a_thread_beside(tmp_path: Path) -> None:
    broker = MemoryBroker()
    MemoryAdmin(broker).create_topic("sales", 1)
    core = CubeReceiver(
        small_schema(),
        replica_set="rs",
        consumer=MemoryConsumer(broker, "sales"),
        producer=MemoryProducer(broker),
        folder=tmp_path,
        clock=ManualClock(START_MS),
        settings=ReceiverSettings(disk_free_bytes_min=0),
        ends_beside=True,
    )
    control = CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0})
    view = CubeView(control=control, start_offsets={0: 0})
    core.step(view)
    core.step(view)
    assert core.progress.log_ends == {}
    assert core.consumer_state is ConsumerState.REPLAYING
    core.look_up_log_ends()
    core.step(view)
    assert core.progress.log_ends == {0: 0}
    assert core.consumer_state is ConsumerState.CONSUMING
    core.close()
