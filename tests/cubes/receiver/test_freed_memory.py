"""A receiver that is behind gives back what its batches have freed, and no other does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rtolap.cubes.receiver.core import freed_memory
from rtolap.cubes.receiver.core.freed_memory import RELEASE_EVERY_S, FreedMemory
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

BLOCK_BYTES = 128 << 20
RELEASE_EVERY_MS = int(RELEASE_EVERY_S * 1000)


class Releases:
    """Counts how often memory is given back."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.mark.parametrize("state", list(ConsumerState))
def test_memory_is_given_back_while_behind_only(state: ConsumerState) -> None:
    clock, releases = ManualClock(START_MS), Releases()
    freed = FreedMemory(clock, releases)
    for _ in range(5):
        freed.batch_taken(state)
        clock.advance_ms(RELEASE_EVERY_MS)
    assert releases.count == (5 if state is ConsumerState.REPLAYING else 0)


def test_small_batches_in_quick_succession_give_back_once() -> None:
    clock, releases = ManualClock(START_MS), Releases()
    freed = FreedMemory(clock, releases)
    for _ in range(10 * RELEASE_EVERY_MS):
        freed.batch_taken(ConsumerState.REPLAYING)
        clock.advance_ms(1)
    assert releases.count == 10


def test_the_time_when_it_was_not_behind_counts() -> None:
    clock, releases = ManualClock(START_MS), Releases()
    freed = FreedMemory(clock, releases)
    freed.batch_taken(ConsumerState.REPLAYING)
    clock.advance_ms(RELEASE_EVERY_MS)
    freed.batch_taken(ConsumerState.CONSUMING)
    freed.batch_taken(ConsumerState.REPLAYING)
    assert releases.count == 2


def test_arrow_gives_back_what_is_free() -> None:
    own_bytes = _own_bytes()
    block = pa.array(np.ones(BLOCK_BYTES // 8)).take(pa.array(np.arange(BLOCK_BYTES // 8)))
    assert _own_bytes() > own_bytes + BLOCK_BYTES // 2
    del block
    freed_memory.release_arrow()
    assert _own_bytes() < own_bytes + BLOCK_BYTES // 2


def test_every_batch_of_a_core_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[ConsumerState] = []
    monkeypatch.setattr(FreedMemory, "batch_taken", lambda self, state: told.append(state))
    broker = MemoryBroker()
    broker.create("sales", 1)
    for number in range(10):
        body = {"ts": START_MS + number, "kind": "a", "place": number, "amount": 1}
        broker.append("sales", OutRecord(json.dumps(body).encode(), partition=0))
    core = CubeReceiver(
        small_schema(),
        replica_set="rs",
        consumer=MemoryConsumer(broker, "sales"),
        producer=MemoryProducer(broker),
        folder=tmp_path,
        clock=ManualClock(START_MS),
        settings=ReceiverSettings(disk_free_bytes_min=0, batch_records_max=5),
    )
    control = CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0})
    while core.step(CubeView(control=control, start_offsets={0: 0})):
        pass
    assert told == [ConsumerState.REPLAYING] * 2


def _own_bytes() -> int:
    """Return the bytes of this process's own memory that are resident."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
