"""What closes a segment on real servers, told by its state history: the low watermark, or the sliding
window.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator

import msgspec
import pytest
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.model.cube import SegmentPolicy
from rtolap.protocols.coordinator.messages import SegmentInfo

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.day_stream import declare_cube
from tests.support.cubes.services import Services, wait_for

pytestmark = [pytest.mark.integration]

_FAR_MS = 100 * WINDOW_MS
BY_WATERMARK = SegmentPolicy(
    window_ms=WINDOW_MS,
    allowed_lateness_ms=WINDOW_MS // 2,
    sliding_window_ms=_FAR_MS,
    sliding_window_max_ms=_FAR_MS,
)
BY_SLIDING = SegmentPolicy(
    window_ms=WINDOW_MS,
    allowed_lateness_ms=_FAR_MS,
    sliding_window_ms=2 * WINDOW_MS,
    sliding_window_max_ms=4 * WINDOW_MS,
)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, zookeeper: str, kafka: str) -> Iterator[Services]:
    folder, root = tmp_path_factory.mktemp("services"), f"/closing-{uuid.uuid4().hex}"
    one = Services(folder, zookeeper=zookeeper, root=root, kafka=kafka, coordinators=1)
    try:
        one.start_coordinators()
        one.start_receiver("r1", "only", "--checkpoint-interval-s", "0.5", "--idle-after-s", "60")
        one.coordinator.put_replica_set("only", ["r1"])
        wait_for("the receiver lives", lambda: len(one.coordinator.receivers()) == 1)
        yield one
    finally:
        one.close()


@pytest.mark.parametrize(
    ("policy", "held_ms", "closing_ms", "why"),
    [
        (BY_WATERMARK, WINDOW_MS * 3 // 2 - 1, WINDOW_MS * 3 // 2, "low watermark"),
        (BY_SLIDING, WINDOW_MS // 2 + 2 * WINDOW_MS - 1, WINDOW_MS // 2 + 2 * WINDOW_MS, "sliding window"),
    ],
)
def test_a_segment_is_closed_by_the_event_that_completes_it(
    services: Services,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
    policy: SegmentPolicy,
    held_ms: int,
    closing_ms: int,
    why: str,
) -> None:
    """One event in the first segment, one that is a millisecond too early, and one that closes it."""
    cube, client, producer = unique_name, services.coordinator, KafkaProducer(kafka)
    create_topic(cube)
    schema = small_schema(name=cube, table=cube, segment=policy)
    declare_cube(client, msgspec.structs.replace(schema.table, name=cube, topic=cube), schema.cube)

    def send(at_ms: int) -> None:
        producer.produce(cube, [OutRecord(json.dumps({"ts": START_MS + at_ms, "kind": "a"}).encode())])
        producer.flush(30)
        newest = START_MS + at_ms
        wait_for("the watermark", lambda: client.watermark(cube).low_watermark_ms == newest)

    def first() -> SegmentInfo | None:
        found = [one for one in client.segments(cube) if one.start_ms == START_MS]
        return found[0] if found else None

    send(WINDOW_MS // 2)
    send(held_ms)
    segment = first()
    assert segment is None or segment.state == "ACTIVE"
    send(closing_ms)

    def uploaded() -> bool:
        segment = first()
        return segment is not None and segment.state == "REMOTE_PERSISTED"

    wait_for("it is closed and uploaded", uploaded)
    producer.close()
    state_history = client.segment(cube, first().segment).state_history  # type: ignore[union-attr]
    assert [line.event for line in state_history] == ["CLOSE", "PARTS_JOINED"]
    assert f"only/r1, {why}" in state_history[0].note
    closed = first()
    assert closed is not None
    assert closed.target == {0: 3}, "the vector that was persisted"
    assert [(part.replica_set, part.events) for part in closed.parts] == [("only", 1)]
