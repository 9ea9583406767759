"""A consumer that reads what is far behind through a client of its own, so that the rest stays fresh.

Records of one client come out of one queue: behind the backlog of one partition, a record that has just
arrived at another waits for all of it. The rule that chooses whom to read apart has a hysteresis, and none is
apart where all are behind: then there is nobody to protect, and one client is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rtolap.base.errors import RtolapError
from rtolap.kafka.batch import joined
from rtolap.kafka.interfaces import BATCH_BYTES_MAX, Batch, EpochEnd, LogRange, OffsetsGone, StreamConsumer
from rtolap.model.offsets import Offsets

_WAIT_SLICE_S = 0.01
_NEAR = 0.1  # of what counts as behind


@dataclass(frozen=True, slots=True)
class CatchUpBounds:
    """Bounds of reading partitions apart that are far behind.

    Attributes:
        behind_records: who is further behind than this at `looks` looks in a row is read apart.
        near_records: until it is no further behind than this.
        looks: see `behind_records`.
        look_every_s: seconds from one look to the next.
        share: the part of each batch that is left to the backlog, and all it may have, so that no batch takes
            long.
        partitions_max: how many catch up at a time.
        turn_s: how long each of them may, while others wait.
    """

    behind_records: int = 100_000
    near_records: int = 10_000
    looks: int = 3
    look_every_s: float = 0.25
    share: float = 0.25
    partitions_max: int = 8
    turn_s: float = 5.0


class LaneChooser:
    """The rule, look by look. `behind`: those that are to be read apart."""

    def __init__(self, bounds: CatchUpBounds) -> None:
        self._bounds = bounds
        self._seen_behind: dict[int, int] = {}
        self._apart: set[int] = set()

    def choose(self, lags: Mapping[int, int], fixed: Iterable[int] = ()) -> frozenset[int]:
        """Return the partitions that are to be read apart.

        `lags`: how many records each is behind, as far as known; `fixed`: those whose place is not to change
        now, as that of paused ones.
        """
        bounds, fixed = self._bounds, set(fixed)
        self._apart &= lags.keys() | fixed
        for partition, lag in lags.items():
            if partition in fixed:
                continue
            if partition in self._apart:
                if lag <= bounds.near_records:
                    self._apart.discard(partition)
                    self._seen_behind.pop(partition, None)
            elif lag > bounds.behind_records:
                self._seen_behind[partition] = self._seen_behind.get(partition, 0) + 1
            else:
                self._seen_behind.pop(partition, None)
        behind = {partition for partition, looks in self._seen_behind.items() if looks >= bounds.looks}
        candidates = self._apart | (behind & lags.keys())
        if (lags.keys() | fixed) - candidates:
            self._apart = candidates
        elif not fixed:
            self._apart = set()
        return frozenset(self._apart)

    def forget(self) -> None:
        self._seen_behind.clear()
        self._apart.clear()


def catch_up_consumer(open_consumer: Callable[[], StreamConsumer], behind_records: int) -> StreamConsumer:
    """Return a consumer that reads apart what is further behind than so many records; 0: one that never
    does.
    """
    if not behind_records:
        return open_consumer()
    return CatchUpConsumer(
        open_consumer, CatchUpBounds(behind_records=behind_records, near_records=int(behind_records * _NEAR))
    )


class CatchUpConsumer:
    """StreamConsumer over two others: `open_consumer` opens one of the topic; the second is opened when a
    partition is far behind for the first time.

    A partition is read by one of them at a time. It is handed over at the position behind the last record
    that a poll gave out; what the other had fetched ahead is fetched again.
    """

    def __init__(
        self,
        open_consumer: Callable[[], StreamConsumer],
        bounds: CatchUpBounds | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = open_consumer
        self._bounds = bounds or CatchUpBounds()
        self._now_s = now_s
        self._chooser = LaneChooser(self._bounds)
        self._live = open_consumer()
        self._behind: StreamConsumer | None = None
        self._read: list[int] = []  # what the second has read, in the order in which it came to it
        self._waiting: Offsets = {}  # behind too, and not read until it is their turn; the next one first
        self._paused: set[int] = set()
        self._pending: RtolapError | None = None
        self._next_look_s = self._next_turn_s = now_s()
        self.topic = self._live.topic

    @property
    def apart(self) -> frozenset[int]:
        """Return the partitions that are not read with the others now."""
        behind = frozenset[int]() if self._behind is None else frozenset(self._behind.position())
        return behind | self._waiting.keys()

    def assign(self, offsets: Offsets) -> None:
        self._chooser.forget()
        self._waiting = {}
        self._pending = None
        self._paused &= offsets.keys()
        if self._behind is not None:
            self._behind.assign({})
        self._live.assign(offsets)
        if self._paused:
            self._live.pause(self._paused)

    def add_partitions(self, offsets: Offsets) -> None:
        apart = self.apart
        self._live.add_partitions(
            {partition: at for partition, at in offsets.items() if partition not in apart}
        )

    def remove_partitions(self, partitions: Iterable[int]) -> None:
        chosen = set(partitions)
        self._paused -= chosen
        if isinstance(self._pending, OffsetsGone) and self._pending.partition in chosen:
            self._pending = None
        for partition in chosen & self._waiting.keys():
            del self._waiting[partition]
        for consumer in self._consumers():
            consumer.remove_partitions(chosen & consumer.position().keys())

    def poll(self, records_max: int, timeout_s: float, *, bytes_max: int = BATCH_BYTES_MAX) -> Batch:
        self._raise_pending()
        self._look()
        if self._behind is None or not self._behind.position():
            return self._live.poll(records_max, timeout_s, bytes_max=bytes_max)
        records, size = (max(1, int(whole * self._bounds.share)) for whole in (records_max, bytes_max))
        deadline_s = self._now_s() + timeout_s
        while True:
            live = self._live.poll(max(1, records_max - records), 0, bytes_max=max(1, bytes_max - size))
            batch = self._with_backlog(live, min(records, records_max - len(live)), size)
            left_s = deadline_s - self._now_s()
            if len(batch) or left_s <= 0:
                return batch
            live = self._live.poll(records_max, min(left_s, _WAIT_SLICE_S), bytes_max=bytes_max)
            if len(live):
                return live

    def position(self) -> Offsets:
        behind = {} if self._behind is None else self._behind.position()
        return self._live.position() | behind | self._waiting

    def known_ends(self) -> Offsets:
        behind = {} if self._behind is None else self._behind.known_ends()
        return self._live.known_ends() | behind

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        return self._live.log_range(partition, timeout_s)

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        return self._live.partitions(timeout_s)

    def topic_id(self, timeout_s: float = 5.0) -> str:
        return self._live.topic_id(timeout_s)

    def epoch_ends(self, epochs: Mapping[int, int | None], timeout_s: float = 5.0) -> dict[int, EpochEnd]:
        return self._live.epoch_ends(epochs, timeout_s)

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        chosen = set(self.position() if partitions is None else partitions)
        self._paused |= chosen
        for consumer in self._consumers():
            consumer.pause(chosen & consumer.position().keys())

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        chosen = set(self.position() if partitions is None else partitions)
        self._paused -= chosen
        for consumer in self._consumers():
            consumer.resume(chosen & consumer.position().keys())

    @property
    def broker_error(self) -> str | None:
        return next((error for error in (each.broker_error for each in self._consumers()) if error), None)

    def close(self) -> None:
        for consumer in self._consumers():
            consumer.close()

    def _consumers(self) -> tuple[StreamConsumer, ...]:
        return (self._live,) if self._behind is None else (self._live, self._behind)

    def _raise_pending(self) -> None:
        """Raise a pending error. An offset that is gone stays gone until `assign`; any other error may
        pass."""
        error = self._pending
        if error is not None:
            if not isinstance(error, OffsetsGone):
                self._pending = None
            raise error

    def _with_backlog(self, live: Batch, records_max: int, bytes_max: int) -> Batch:
        """Return live records with the backlog's. Live records are already taken: where there are some, the
        backlog's error waits for the next poll."""
        assert self._behind is not None
        if records_max < 1:
            return live
        try:
            behind = self._behind.poll(records_max, 0, bytes_max=bytes_max)
        except RtolapError as error:
            if not len(live):
                raise
            self._pending = error
            return live
        return joined([each for each in (live, behind) if len(each)] or [live])

    # -- who reads what ---------------------------------------------------------------------------------

    def _look(self) -> None:
        now_s = self._now_s()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self._bounds.look_every_s
        positions, ends = self.position(), self.known_ends()
        lags = {partition: ends.get(partition, at) - at for partition, at in positions.items()}
        fixed = (self._paused & positions.keys()) | self._waiting.keys()
        wanted = self._chooser.choose(lags, fixed)
        before = self.apart
        for partition in sorted(before - wanted):
            self._to_live(partition)
        for partition in sorted(wanted - before):
            self._waiting[partition] = positions[partition]
            self._live.remove_partitions([partition])
        self._take_turns(now_s)
        if self._behind is not None and not self._behind.position():
            self._behind.close()  # one that nobody polls would keep all that its client has to tell
            self._behind = None

    def _take_turns(self, now_s: float) -> None:
        """Let as many catch up as may at a time. A partition that has had its turn goes behind those that
        wait, in the order in which they came to it: nobody has two turns while another has one."""
        there = {} if self._behind is None else self._behind.position()
        read = self._read = [partition for partition in self._read if partition in there]
        if not self._waiting:
            return
        if now_s >= self._next_turn_s and len(read) >= self._bounds.partitions_max:
            assert self._behind is not None
            over = [partition for partition in read if partition not in self._paused]
            self._behind.remove_partitions(over)
            self._waiting |= {partition: there[partition] for partition in over}
            read = self._read = [partition for partition in read if partition not in over]
        free = self._bounds.partitions_max - len(read)
        if free > 0:
            self._next_turn_s = now_s + self._bounds.turn_s
        for partition in list(self._waiting)[: max(0, free)]:
            self._to_behind(partition, self._waiting.pop(partition))

    def _to_behind(self, partition: int, position: int) -> None:
        if self._behind is None:
            self._behind = self._open()
        self._behind.add_partitions({partition: position})
        self._read.append(partition)
        if partition in self._paused:
            self._behind.pause([partition])

    def _to_live(self, partition: int) -> None:
        position = self._waiting.pop(partition, None)
        if position is None:
            assert self._behind is not None
            position = self._behind.position()[partition]
            self._behind.remove_partitions([partition])
        self._live.add_partitions({partition: position})
        if partition in self._paused:
            self._live.pause([partition])
