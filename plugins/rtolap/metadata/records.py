"""Contents of the znodes: frozen, JSON, one class each. Offsets always mean next-to-read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rtolap.model.completeness import Completeness, EventLoss
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentRange, SegmentState, StagedPart


class ReceiverRecord(msgspec.Struct, frozen=True):
    """A receiver that runs.

    Attributes:
        port: of its Flight server.
        metrics_port: of its page of metrics; 0 where it shows none.
        machine: name of the machine that it runs on; "" where it is of an older version.
        rack: what fails together with others: a rack, a room or a zone; "" where none is declared.
        program: version of rtolap that it runs; "" where that is one that does not say so.
    """

    receiver_id: str
    host: str
    port: int
    replica_set: str
    metrics_port: int = 0
    machine: str = ""
    rack: str = ""
    program: str = ""


class ReplicaSetRecord(msgspec.Struct, frozen=True):
    """Receivers that hold the same partitions.

    Attributes:
        draining: it keeps what it has until that has moved away, and is given no partitions.
        cubes_max: cubes that its drain moves at the same time.
        missing_since_ms: time at which a leader found that none of its receivers lives; None: one lives, or
            no leader has looked yet.
    """

    name: str
    receivers: tuple[str, ...]
    draining: bool = False
    cubes_max: int = 1
    missing_since_ms: int | None = None


class NextAssignment(msgspec.Struct, frozen=True):
    """The assignment that a move prepares. Replica sets that it changes warm up beside what they serve.

    Attributes:
        epoch: of this assignment, once it stands. No other assignment or plan has or had it.
        assignment: replica set → partitions.
        planned_ms: time at which it was committed as a plan.
        relieves: replica set whose drain or loss it is planned for; "" where somebody asked for the move.
        reason: why the leader has planned it, in words; "" where somebody asked for the move.
    """

    epoch: int
    assignment: dict[str, tuple[int, ...]]
    planned_ms: int = 0
    relieves: str = ""
    reason: str = ""


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """The person who last turned a switch of a cube.

    Attributes:
        to: `enable`, `disable`, `pause` or `resume`.
        by: who asked; "" where nobody gave a name.
    """

    to: str
    by: str
    reason: str
    at_ms: int


def move_id(cube: str, epoch: int) -> str:
    """Return the id of the move to the assignment of this epoch, in the logs of all that take part in it."""
    return f"{cube}@{epoch}"


class CubeControl(msgspec.Struct, frozen=True):
    """The coordinator's decisions about a cube.

    Attributes:
        enabled: whether receivers consume it.
        paused: whether they pause.
        horizon_ms: segments that end at or below it are purged for ever.
        first_offsets: where the cube begins, fixed once per partition when it is first assigned. Staged parts
            of a segment's first version start here.
        assignment: replica set → partitions. An empty list is a replica set that still answers for what it
            holds.
        assignment_epoch: grows with each assignment.
        close_before_ms: asks the leaders to close every segment that ends at or below it and has no history
            yet, without waiting for the watermark. It never shrinks.
        close_epoch: grows with each such request. A leader that sees a new one also closes the late deltas of
            such segments, once.
        close_completeness: of a cube with an application, what was known at the newest request.
        generation_base: readers of a cube with an application count their generations from it on, so that
            those
            of a cube that is recreated do not look older than those of its predecessor.
        topic_id: of the topic in which all offsets of the cube count; "" where it is not known.
        losses: offsets that a person has accepted as lost; receivers pass over them.
        version_losses: losses of READY versions that had to be rebuilt; they count for the segment of their
            time only.
        next: the assignment that a running move prepares; None while nothing moves.
        moved_from: the assignment before the move that stood last; empty where none did.
        planned_epoch: the largest epoch that was ever given to a plan, whether it came to stand or not.
        ended: a revision that accepts no event any more. It is assigned to nobody: history holds all of it.
        assigned_because: why the leader has made the assignment by itself, in words; "" where somebody asked.
        switched: who has enabled, disabled, paused or resumed it last; None while nobody has.
        restored: id of the restore that wrote the record last; "" where none did. What receivers hold on disk
            belongs to one such id.
    """

    enabled: bool = False
    paused: bool = False
    horizon_ms: int | None = None
    first_offsets: Offsets = {}
    assignment: dict[str, tuple[int, ...]] = {}
    assignment_epoch: int = 0
    close_before_ms: int | None = None
    close_epoch: int = 0
    close_completeness: Completeness | None = None
    generation_base: int = 0
    topic_id: str = ""
    losses: tuple[EventLoss, ...] = ()
    version_losses: tuple[EventLoss, ...] = ()
    next: NextAssignment | None = None
    planned_epoch: int = 0
    moved_from: dict[str, tuple[int, ...]] = {}
    ended: bool = False
    assigned_because: str = ""
    restored: str = ""
    switched: Switched | None = None

    @property
    def epoch_after(self) -> int:
        """Return the epoch of the next assignment or plan, which nothing else has or had."""
        return max(self.assignment_epoch, self.planned_epoch) + 1

    def has_partitions_in(self, replica_set: str) -> bool:
        """Return True if the replica set has partitions of the cube, or gets some by a move that runs."""
        planned = self.next.assignment if self.next is not None else {}
        return bool(self.assignment.get(replica_set) or planned.get(replica_set))

    def warms(self, replica_set: str) -> NextAssignment | None:
        """Return the prepared assignment if this replica set has to warm up for it: it has partitions then,
        and not the ones that it has now."""
        if self.next is None or self.assignment_epoch >= self.next.epoch:
            return None
        after = self.next.assignment.get(replica_set, ())
        changes = set(after) != set(self.assignment.get(replica_set, ()))
        return self.next if after and changes else None


class WatermarkRecord(msgspec.Struct, frozen=True):
    """The low watermark that was published last: a new leader never publishes a smaller one.

    Attributes:
        windows: of a cube with an application, the newest windows that may close, ascending, each as it was
            when that was decided. Segments that end at or below the last may close; see `model.completeness`.
    """

    low_watermark_ms: int | None = None
    windows: tuple[Completeness, ...] = ()


class ReplayFrom(msgspec.Struct, frozen=True):
    """Smallest offset of the replica set's partitions that is not yet in history."""

    offsets: Offsets


class BuildAttempt(msgspec.Struct, frozen=True):
    """The newest attempt to build `version`. Older attempts can no longer be promoted."""

    build_id: str
    version: int
    started_ms: int
    location: str
    error: str | None = None


class HistoryEntry(msgspec.Struct, frozen=True):
    at_ms: int
    event: str
    state: str
    note: str = ""


class MergedSet(msgspec.Struct, frozen=True):
    """A set of files that holds the rows of several READY versions, merged.

    Attributes:
        level: the interval that it was merged to, "day" or "month".
        location: its folder in the object store.
        members: number of versions whose rows it holds. It answers for all of them together, or not at all.
    """

    level: str
    location: str
    members: int


class SegmentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A segment. `version` and `covered` change together, in one write: that is the exactness rule.

    Attributes:
        version: the READY version that queries read, at `location`; 0 while there is no history.
        covered: partition → next offset; history holds exactly the segment's events below it.
        target: the vector of version + 1, filled by each replica set as it closes its partitions.
        parts: staged parts of version + 1.
        events: number of events in the READY version.
        completeness: of the first version, when its closing was decided; None without an application.
        first_events: number of events in the first version; None before it is READY, and where unknown.
        losses: events that versions may lack, up to the newest version of which a build has begun; see
            `model.completeness`.
        begins: partition → offset below which `covered` holds no event; without partitions of versions that
            did not note it.
        covered_epochs: leader epoch of the last record below `covered`, by partition, as far as it is known.
        target_epochs: the same for `target`.
        base_lost: the READY version has lost what builds start from. The parts of the next one hold all of
            the segment.
        pending_batch: id of the staged batch that the next version is made of; "" for none. Its part, the
            only one, holds all of the segment.
        batch: id of the batch that the READY version began with; "" where all its events are the topic's.
        vectors: checksum of the file that holds `covered`, `covered_epochs`, `begins` and, of a READY
            segment, `losses` of the version (see `metadata.vectors`); None where they are in the record.
        merged: the sets that hold the rows of the READY version too, finest first, at most one a level.
    """

    cube: str
    start_ms: int
    end_ms: int
    state: SegmentState = SegmentState.ACTIVE
    version: int = 0
    location: str | None = None
    covered: Offsets = {}
    target: Offsets = {}
    parts: tuple[StagedPart, ...] = ()
    build: BuildAttempt | None = None
    events: int = 0
    completeness: Completeness | None = None
    first_events: int | None = None
    losses: tuple[EventLoss, ...] = ()
    begins: Offsets = {}
    covered_epochs: Offsets = {}
    target_epochs: Offsets = {}
    base_lost: bool = False
    pending_batch: str = ""
    batch: str = ""
    vectors: str | None = None
    merged: tuple[MergedSet, ...] = ()
    state_history: tuple[HistoryEntry, ...] = ()

    @property
    def range(self) -> SegmentRange:
        return SegmentRange(self.start_ms, self.end_ms)

    @property
    def name(self) -> str:
        return self.range.name

    @property
    def is_rebuilt(self) -> bool:
        """Return True if the parts of the next version hold all of the segment."""
        return self.base_lost or bool(self.pending_batch)

    @property
    def built_on(self) -> Offsets:
        """Return the vector at which the parts of the next version begin: none where it is rebuilt."""
        return {} if self.is_rebuilt else self.covered

    @property
    def late_events(self) -> int | None:
        """Return the events of the READY version that its first version did not hold."""
        return None if self.first_events is None else self.events - self.first_events


class ChangeLog(msgspec.Struct, frozen=True):
    """The last changes of a cube's segments.

    Attributes:
        cube_id: new for each creation of a cube: a cube that is dropped and recreated is another one.
        sequence: number of the last change.
        recent: the segments of the newest changes, newest last; bounded.
    """

    cube_id: str = ""
    sequence: int = 0
    recent: tuple[tuple[int, str], ...] = ()


class LevelState(msgspec.Struct, frozen=True):
    input_ms: int | None = None
    output_ms: int | None = None


class UnitKey(msgspec.Struct, frozen=True, order=True):
    level: str
    processor: str
    key_group: int


class KnownUnit(UnitKey, frozen=True, order=True):
    """A unit that has reported.

    Attributes:
        generation: of its owner; statements of an older generation are void.
    """

    generation: int = 0

    @property
    def key(self) -> UnitKey:
        return UnitKey(self.level, self.processor, self.key_group)


class Owner(msgspec.Struct, frozen=True):
    """The coordinator that runs an application.

    Attributes:
        node: path of its candidate's node, which goes with its session and never returns.
        url: its address.
    """

    node: str
    url: str


class ApplicationState(msgspec.Struct, frozen=True):
    """The published state of an application, and the reporters that a new owner awaits before it goes on.

    Attributes:
        epoch: new for each owner and each creation of the application.
        levels: watermarks of each level.
        global_ms: the global low watermark.
        generations: source → partition → generation of its consumer; awaited.
        units: those with a lease; awaited.
        owner: who runs it; None if nobody does.
    """

    epoch: int = 0
    levels: dict[str, LevelState] = {}
    global_ms: int | None = None
    generations: dict[str, dict[int, int]] = {}
    units: tuple[KnownUnit, ...] = ()
    owner: Owner | None = None


class Approval(msgspec.Struct, frozen=True):
    """A person's word that windows which end at or below `until_ms` may close as they are."""

    until_ms: int
    by: str
    reason: str
    at_ms: int


class Approvals(msgspec.Struct, frozen=True):
    approvals: tuple[Approval, ...] = ()


class LeavingHost(msgspec.Struct, frozen=True, array_like=True):
    """A host that leaves its source.

    Attributes:
        host: position in the list of names.
        end_ms: it leaves once it has been read to here; None: no end was announced.
        until_ms: when it leaves at the latest, by the leader's clock.
    """

    host: int
    end_ms: int | None
    until_ms: int


class SourceHosts(msgspec.Struct, frozen=True):
    """The hosts of a source.

    Attributes:
        names: a name a line, compressed by zlib.
        leaving: packed LeavingHosts, compressed; empty where nobody leaves.
    """

    epoch: int
    names: bytes
    leaving: bytes = b""


def standing(control: CubeControl, records: Mapping[str, SegmentRecord]) -> list[SegmentRecord]:
    """Return all segments with a READY version beyond the purge horizon, whatever else the segment is
    doing."""
    return [
        record
        for record in records.values()
        if record.version > 0
        and record.state is not SegmentState.PURGED
        and (control.horizon_ms is None or record.end_ms > control.horizon_ms)
    ]
