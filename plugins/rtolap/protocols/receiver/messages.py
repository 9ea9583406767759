"""Receiver protocol, Arrow Flight: messages. `do_get` answers partial aggregates, `do_action` controls.

Ticket: a PartialQuery as JSON. Answer: one row per combination of `dimensions` (their values plain, not
dictionary-encoded) with the `partials` columns; sketches as compact DataSketches HLL_8 bytes. The schema's
metadata holds a PartialAnswer as JSON under ANSWER_KEY. Every call carries `authorization: Bearer <token>`.
Errors travel as FlightServerError text: the JSON of `RtolapError.to_dict()` behind `ERROR_MARK`.

Actions (body and result JSON): `stats` → ReceiverStats; `pause`, `resume`, `close_segments`
({cube, segments}) and `checkpoint` → {}.
"""

from __future__ import annotations

import msgspec

from rtolap.model.predicate import Predicate

ANSWER_KEY = b"rtolap.answer"


class HistorySnapshot(msgspec.Struct, frozen=True):
    """The part of a cube that history returns, so that the receiver returns exactly the rest.

    Attributes:
        versions: segment name → READY version; segments not named here have no history.
        horizon_ms: segments ending at or below it are purged and answered by nobody.
        start_ms, end_ms: only segments that overlap this range are requested (None: unbounded).
        assignment_epoch: the assignment by which receivers are queried; None where a single one is.
    """

    versions: dict[str, int] = {}
    horizon_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    assignment_epoch: int | None = None


class TopGroups(msgspec.Struct, frozen=True):
    """The groups that are enough: the first `rows` by one partial, and all that equal the last of them.

    Attributes:
        column: the name of the partial.
        spread: True if others hold parts of the same groups: the answer says what it leaves out.
        among: groups that are enough only with these, by their only dimension; None: no further ones.
        above: a number as text: groups with at least this value are asked for too; None: no further ones.
    """

    column: str
    descending: bool
    nulls_first: bool
    rows: int
    spread: bool = False
    among: tuple[str | int | None, ...] | None = None
    above: str | None = None


class GroupsLeft(msgspec.Struct, frozen=True):
    """The groups that an answer to a spread question leaves out.

    Attributes:
        largest: the largest value of the groups that are left out, a number as text; None: no group is.
    """

    largest: str | None


class PartialQuery(msgspec.Struct, frozen=True):
    """A query for the partial aggregates of one receiver.

    It keeps answers from going backwards when another replica answers; the receiver waits for it until
    `timeout_ms` and then fails with Unavailable, saying how far behind it is.

    Attributes:
        at_least: partition → offset that the receiver must have consumed up to before it answers.
        top: the groups that are enough, where nobody else holds events of them; None: all. A receiver may
            send more.
        ahead: True if nobody waits for the answer: the receiver makes what it keeps for such a query,
            sends no rows, and does not wait for another state.
    """

    cube: str
    dimensions: tuple[str, ...]
    partials: tuple[str, ...]
    snapshot: HistorySnapshot
    filter: Predicate | None = None
    at_least: dict[int, int] = {}
    timeout_ms: int = 30_000
    top: TopGroups | None = None
    ahead: bool = False


class PartialAnswer(msgspec.Struct, frozen=True):
    """The part of a receiver's answer that stands beside its rows.

    Attributes:
        positions: partition → next offset: the answer holds exactly the events below, for each partition that
            this receiver consumes.
        cuboids: name of a cuboid → tables of which it was read instead of their rows.
        refused: partition → reason → records that this receiver has refused since it reads the partition, and
            that are in no count.
        refused_example: reason → what was wrong with the newest of them.
        held: why the receiver does not read what arrives, and since when; empty where it does.
        void: partition → offset beyond the position: answers up to there held records that the topic's log
            has lost, and are not to be waited for.
        left: what it leaves out of the groups, if the question was spread and the receiver knows such.
    """

    receiver_id: str
    positions: dict[int, int]
    segments: tuple[str, ...] = ()
    rows_scanned: int = 0
    rows_pruned: int = 0
    refused: dict[int, dict[str, int]] = {}
    refused_example: dict[str, str] = {}
    cuboids: dict[str, int] = {}
    held: str = ""
    void: dict[int, int] = {}
    left: GroupsLeft | None = None


class PartitionStats(msgspec.Struct, frozen=True):
    partition: int
    position: int
    log_end: int | None
    watermark_ms: int | None
    idle: bool
    events: int
    rejected: dict[str, int] = {}
    late: int = 0
    dropped: int = 0
    hostless: int = 0
    filtered: int = 0


class LocalSegmentStats(msgspec.Struct, frozen=True):
    segment: str
    version: int  # the history version that this local data will become part of
    state: str
    events: int
    memory_rows: int
    fragments: int
    bytes: int


class CubeStats(msgspec.Struct, frozen=True):
    """A cube, as a receiver reads it.

    Attributes:
        refused_example: reason → what was wrong with the newest record that was refused for it.
        cuboid_bytes: of small cuboids in memory, beside fragments.
        freshness_ms: the longest time that a record of the last minute took from its creation until answers
            had it; None: none with a timestamp was read.
    """

    cube: str
    state: str  # CONSUMING | PAUSED | REPLAYING | STOPPED | FAILED
    reason: str
    is_leader: bool
    partitions: tuple[PartitionStats, ...] = ()
    segments: tuple[LocalSegmentStats, ...] = ()
    refused_example: dict[str, str] = {}
    cuboid_bytes: int = 0
    freshness_ms: int | None = None


class ReceiverStats(msgspec.Struct, frozen=True):
    receiver_id: str
    replica_set: str
    address: str
    cubes: tuple[CubeStats, ...] = ()
    memory_bytes: int = 0
    started_ms: int = 0
