"""HBase's shipping of edits, as a seeded model: regions, logs, queues, calls.

A region lives on one server at a time and moves; it splits into daughters whose ids begin above its own, and
neighbours merge into one whose ids begin above theirs. A server writes its regions' edits into its log in
order, whatever region they are of. A queue ships its log a batch at a time, split by region into calls that
run side by side; the next batch goes when all of them are acknowledged. A call that fails or times out is
sent again, also while the first still works. A queue whose server died is claimed by another, from the
position that was stored last, with other borders of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.support.sep.batches import Event

ROWS = 12


@dataclass(frozen=True)
class Edit:
    region: str
    sequence_id: int
    rows: tuple[bytes, ...]
    write_time_ms: int

    def events(self) -> list[Event]:
        return [Event(self.region, self.sequence_id, row, self.write_time_ms) for row in self.rows]


@dataclass
class Region:
    name: str
    server: int
    rows: Sequence[bytes]
    next_id: int


@dataclass(eq=False)
class ShippedCall:
    """A call on its way. `abandoned`: the source waits for its answer no more, and has sent it again."""

    queue: Queue
    edits: tuple[Edit, ...]
    abandoned: bool = False


@dataclass(eq=False)
class Queue:
    """`shipped` counts edits that were acknowledged, `stored` those that a recovered queue would skip."""

    log: list[Edit]
    server: int | None
    shipped: int = 0
    stored: int = 0
    batch_end: int = 0
    calls: list[ShippedCall] = field(default_factory=list)


class Shipping:
    """`written` holds every edit in the order of writing."""

    def __init__(self, random: Random, servers: int = 3) -> None:
        self.random = random
        self.written: list[Edit] = []
        self.queues: list[Queue] = [Queue([], server) for server in range(servers)]
        self.regions: list[Region] = []
        self._made = 0
        self._time_ms = 0
        rows = [b"row-%02d" % number for number in range(ROWS)]
        for first in (0, ROWS // 2):
            self._add_region(rows[first : first + ROWS // 2], first_id=1)

    @property
    def is_idle(self) -> bool:
        return all(queue.shipped == len(queue.log) for queue in self.queues)

    def write(self) -> None:
        region = self.random.choice(self.regions)
        region.next_id += self.random.choice((0, 0, 0, 1, 5))  # edits that are of no interest here
        most = min(3, len(region.rows)) if self.random.random() < 0.3 else 1
        rows = tuple(self.random.sample(list(region.rows), self.random.randint(1, most)))
        self._time_ms += 1
        edit = Edit(region.name, region.next_id, rows, self._time_ms)
        region.next_id += 1
        self._log_of(region.server).append(edit)
        self.written.append(edit)

    def move_region(self) -> None:
        region = self.random.choice(self.regions)
        region.server = self.random.choice(self._servers())
        region.next_id += 2  # it is closed and opened

    def split_region(self) -> None:
        region = self.random.choice(self.regions)
        if len(region.rows) < 2 or len(self.regions) > 5:
            return
        self.regions.remove(region)
        middle = len(region.rows) // 2
        for rows in (region.rows[:middle], region.rows[middle:]):
            self._add_region(rows, first_id=region.next_id + 1)

    def merge_regions(self) -> None:
        ordered = sorted(self.regions, key=lambda region: region.rows[0])
        if len(ordered) < 3:
            return
        at = self.random.randrange(len(ordered) - 1)
        left, right = ordered[at : at + 2]
        self.regions.remove(left)
        self.regions.remove(right)
        self._add_region([*left.rows, *right.rows], first_id=max(left.next_id, right.next_id) + 1)

    def stop_server(self) -> None:
        """Stop a server: its regions open elsewhere, and its queue is shipped by another server, which ships
        its own as well."""
        running = [queue for queue in self.queues if queue.server is not None]
        stopped = self.random.choice(running)
        server = stopped.server
        stopped.server = None
        stopped.shipped = stopped.batch_end = stopped.stored
        for call in stopped.calls:
            call.abandoned = True
        stopped.calls.clear()
        self.random.shuffle(self.queues)
        if len(running) == 1 or self.random.random() < 0.7:
            self.queues.append(Queue([], server))  # it is started again, with an empty log
        for region in self.regions:
            if region.server == server:
                region.server = self.random.choice(self._servers())
                region.next_id += 2

    def ship(self) -> list[ShippedCall]:
        """Ship new calls of one queue that waits for none."""
        ready = [queue for queue in self.queues if not queue.calls and queue.shipped < len(queue.log)]
        if not ready:
            return []
        queue = self.random.choice(ready)
        queue.batch_end = min(len(queue.log), queue.shipped + self.random.randint(1, 12))
        batch = queue.log[queue.shipped : queue.batch_end]
        ways = self.random.randint(1, 3)
        parts: dict[int, list[Edit]] = {}
        for edit in batch:
            parts.setdefault(int(edit.region.partition("-")[2]) % ways, []).append(edit)
        queue.calls = [ShippedCall(queue, tuple(part)) for part in parts.values()]
        return list(queue.calls)

    def time_out(self, call: ShippedCall) -> ShippedCall | None:
        """Send it again to another sink; the first is still on its way."""
        if call.abandoned:
            return None
        call.abandoned = True
        again = ShippedCall(call.queue, call.edits)
        call.queue.calls[call.queue.calls.index(call)] = again
        return again

    def answered(self, call: ShippedCall, *, well: bool) -> ShippedCall | None:
        """Return the call that is sent instead, where it was not answered well."""
        if call.abandoned:
            return None  # nobody listens
        if not well:
            return self.time_out(call)
        queue = call.queue
        queue.calls.remove(call)
        if not queue.calls:
            queue.shipped = queue.batch_end
            if self.random.random() < 0.6:
                queue.stored = queue.shipped
        return None

    def _add_region(self, rows: Sequence[bytes], first_id: int) -> None:
        self._made += 1
        server = self.random.choice(self._servers())
        self.regions.append(Region(f"region-{self._made}", server, rows, first_id))

    def _servers(self) -> list[int]:
        return sorted({queue.server for queue in self.queues if queue.server is not None})

    def _log_of(self, server: int) -> list[Edit]:
        return next(queue.log for queue in self.queues if queue.server == server)
