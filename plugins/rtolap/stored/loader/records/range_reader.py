"""Reads exactly the records of a range again."""

from __future__ import annotations

from collections.abc import Callable

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound, Unavailable
from rtolap.kafka.interfaces import Batch, OffsetsGone, StreamConsumer, TopicRecreated
from rtolap.kafka.topic_identity import TopicIdentity
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.records.content import Content, content_of
from rtolap.stored.loader.states import RECREATED_ACTION, StopCause, Stopped, recreated

_POLL_RECORDS = 50_000
_POLL_S = 0.2


def read_range(
    open_consumer: Callable[[], StreamConsumer],
    start: Offsets,
    end: Offsets,
    *,
    clock: Clock,
    topic_id: str | None = None,
    retry_budget_s: float = 60.0,
) -> Content:
    """The records in `[start, end)`. Stopped where the topic holds them no more; Unavailable when the broker
    does not give them in time: try again. With transaction markers and gaps at its end a range is complete
    once the position has passed them. `topic_id`: of the topic in which the offsets count, if it is known."""
    wanted = {partition: at for partition, at in start.items() if at < end[partition]}
    if not wanted:
        return content_of([])
    consumer = open_consumer()
    try:
        consumer.assign(wanted)
        deadline_s = clock.monotonic_s() + retry_budget_s
        batches: list[Batch] = []
        done: set[int] = set()
        while len(done) < len(wanted):
            batch = consumer.poll(_POLL_RECORDS, _POLL_S)
            if len(batch):
                batches.append(batch)
            position = consumer.position()
            reached = {partition for partition in wanted if position[partition] >= end[partition]} - done
            if reached:
                done |= reached
                consumer.pause(reached)  # else a busy partition would be read far beyond its end
            elif not len(batch) and clock.monotonic_s() > deadline_s:
                raise Unavailable(
                    f"{consumer.topic} does not give a recorded range",
                    expected=f"offsets up to {end}",
                    found=f"position {position}; {consumer.broker_trouble or 'no trouble is known'}",
                )
        _check_topic(consumer, topic_id)
        return content_of(batches, end)
    except OffsetsGone as error:
        _check_topic(consumer, topic_id)
        raise Stopped(
            StopCause.RANGE_GONE,
            f"{consumer.topic} partition {error.partition} no longer holds a batch that is not loaded yet",
            expected=f"offsets {start.get(error.partition)} to {end.get(error.partition)}",
            found=f"{error.start} to {error.end}",
            action="what is lost is lost: `rtolap loader reset --go-on` goes on from what the topic holds; "
            "it takes `--abandon` where the batch was sent",
        ) from error
    except NotFound as error:
        raise Stopped(StopCause.TOPIC_GONE, str(error)) from error
    finally:
        consumer.close()


def _check_topic(consumer: StreamConsumer, topic_id: str | None) -> None:
    """Raise Stopped unless what was read is of the topic that the range was recorded in."""
    if topic_id is None:
        return
    try:
        TopicIdentity(consumer.topic, consumer.topic_id, action=RECREATED_ACTION, known=topic_id).confirm()
    except TopicRecreated as error:
        raise recreated(error) from error
    except NotFound as error:
        raise Stopped(StopCause.TOPIC_GONE, str(error)) from error
