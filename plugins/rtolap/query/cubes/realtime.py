"""Real time takes one request per replica set, to the preferred receiver, and to the next one when it
fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, Protocol, TypeVar

import msgspec
import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import NotReached, RtolapError, StaleSnapshot, Unauthorized, Unavailable
from rtolap.base.ids import CarryingPool
from rtolap.model.segment import parse_segment_name
from rtolap.protocols.receiver.client import ReceiverClients
from rtolap.protocols.receiver.messages import (
    CubeStats,
    HistorySnapshot,
    LocalSegmentStats,
    PartialAnswer,
    PartialQuery,
)
from rtolap.query.cancel import Cancellation, wait_within
from rtolap.query.peers import Attempt, PeersFailed, QueryPeer, QueryPeers
from rtolap.query.plan import CubeRead, ReadStats, ReplicaSetPlan

SETS_MAX = 64  # replica sets called at the same time, over all queries; more wait for a free thread
CALLS_MAX = 128  # of receivers: those that were given up end by themselves, after at most ATTEMPT_MS_MAX
ATTEMPT_MS_MAX = 30_000  # what one receiver gets before the next is called
WORDS_MS_MAX = 1_000  # of the statement's time left for it to say why it could not answer

P = ParamSpec("P")
T = TypeVar("T")
CancelHook = Callable[[Callable[[], None]], None]


class CountedTwice(Unavailable):
    """Two replica sets hold the same partition, as may be while an assignment changes: look again."""

    code = "counted_twice"


class RealtimeSource(Protocol):
    """A source of a receiver's partials: Flight, or memory in tests."""

    def ask(
        self, receiver_id: str, address: str, query: PartialQuery, on_start: CancelHook
    ) -> tuple[pa.Table, PartialAnswer]: ...

    def stats(self, receiver_id: str, address: str, cube: str) -> CubeStats | None:
        """Return what the receiver holds of the cube, without making it compute anything; None if nothing."""
        ...

    def ping(self, receiver_id: str, address: str, within_s: float) -> None:
        """Raise Unavailable when the receiver does not answer even this in time."""
        ...

    def ask_ahead(self, receiver_id: str, address: str, query: PartialQuery) -> None:
        """Have the receiver make what it keeps for such a query: see `queries_ahead`. Raises what `ask` of it
        raises."""
        ...


class FlightSource:
    def __init__(self, clients: ReceiverClients) -> None:
        self._clients = clients

    def ask(
        self, receiver_id: str, address: str, query: PartialQuery, on_start: CancelHook
    ) -> tuple[pa.Table, PartialAnswer]:
        return self._clients.at(address).query(query, on_start=on_start)

    def stats(self, receiver_id: str, address: str, cube: str) -> CubeStats | None:
        stats = self._clients.at(address).stats()
        return next((known for known in stats.cubes if known.cube == cube), None)

    def ping(self, receiver_id: str, address: str, within_s: float) -> None:
        self._clients.at(address).ping(within_s)

    def ask_ahead(self, receiver_id: str, address: str, query: PartialQuery) -> None:
        self._clients.at(address).query(query)


class Realtime:
    def __init__(self, source: RealtimeSource, clock: Clock) -> None:
        self._source = source
        self._sets = CarryingPool(SETS_MAX, thread_name_prefix="replica-set")
        self._receivers = QueryPeers("receiver-call", CALLS_MAX, self._ping, clock)

    def close(self) -> None:
        self._sets.shutdown(wait=False, cancel_futures=True)
        self._receivers.close()

    def read(
        self,
        read: CubeRead,
        snapshot: HistorySnapshot,
        sets: tuple[ReplicaSetPlan, ...],
        at_least: dict[int, int],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> list[pa.Table]:
        """Return a table per replica set. No partition is in two of them.

        Raises StaleSnapshot, CountedTwice, or Unavailable naming the replica set.
        """
        query = PartialQuery(
            cube=read.cube,
            dimensions=read.dimensions,
            partials=read.partials,
            snapshot=snapshot,
            filter=read.filter,
            top=read.top,
        )
        futures = [
            self._sets.submit(self._ask_set, query, replica_set, at_least, cancellation)
            for replica_set in sets[:-1]
        ]
        # The last one is called on this thread: most cubes have no other, and another thread costs time.
        last = [_outcome(self._ask_set, query, each, at_least, cancellation) for each in sets[-1:]]
        wait_within(futures, cancellation)
        outcomes = [*(_outcome(future.result) for future in futures), *last]
        tables: list[pa.Table] = []
        errors: list[RtolapError] = []
        answers: dict[str, PartialAnswer] = {}
        for replica_set, outcome in zip(sets, outcomes, strict=True):
            if isinstance(outcome, RtolapError):
                errors.append(outcome)
                continue
            receiver, table, answer = outcome
            tables.append(table)
            answers[replica_set.replica_set] = answer
            stats.receivers[replica_set.replica_set] = receiver
            stats.left[replica_set.replica_set] = answer.left
            stats.realtime_segments = tuple(sorted({*stats.realtime_segments, *answer.segments}))
            stats.rows_read += answer.rows_scanned
            stats.rows_pruned += answer.rows_pruned
            for name, tables_read in answer.cuboids.items():
                stats.realtime_cuboids[name] = stats.realtime_cuboids.get(name, 0) + tables_read
            _count_refused(stats, replica_set, answer.refused, answer.refused_example)
            if answer.held:
                stats.stalled[receiver] = answer.held
            stats.positions.update({p: o for p, o in answer.positions.items() if p in replica_set.partitions})
            stats.void.update({p: o for p, o in answer.void.items() if p in replica_set.partitions})
        cancellation.check()
        if errors:  # a stale snapshot can be renewed, so it is reported first
            raise next((e for e in errors if isinstance(e, StaleSnapshot)), errors[0])
        _check_apart(read.cube, answers)
        return tables

    def estimate(
        self,
        read: CubeRead,
        snapshot: HistorySnapshot,
        sets: tuple[ReplicaSetPlan, ...],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> None:
        """Add the receivers that a read would call to `stats`, and at most how many events they hold.

        A receiver that does not answer is noted, and is no error.
        """
        for replica_set in sets:
            failures = []
            for receiver, address in replica_set.receivers:
                cancellation.check()
                try:
                    cube_stats = self._source.stats(receiver, address, read.cube)
                except (Unavailable, Unauthorized) as error:
                    failures.append(f"{receiver}: {error}")
                    continue
                segments = () if cube_stats is None else cube_stats.segments
                needed = [segment for segment in segments if _is_needed(segment, read, snapshot)]
                names = (segment.segment for segment in needed)
                stats.receivers[replica_set.replica_set] = receiver
                stats.realtime_segments = tuple(sorted({*stats.realtime_segments, *names}))
                stats.realtime_events += sum(segment.events for segment in needed)
                if cube_stats is not None:
                    refused = {partition.partition: partition.rejected for partition in cube_stats.partitions}
                    _count_refused(stats, replica_set, refused, cube_stats.refused_example)
                break
            else:
                reason = "; ".join(failures) or "none is live"
                stats.receivers[replica_set.replica_set] = f"nobody ({reason})"

    def _ask_set(
        self, query: PartialQuery, plan: ReplicaSetPlan, at_least: dict[int, int], cancellation: Cancellation
    ) -> tuple[str, pa.Table, PartialAnswer]:
        request = msgspec.structs.replace(
            query, at_least={p: o for p, o in at_least.items() if p in plan.partitions}
        )
        attempts = 0

        def ask(receiver: QueryPeer, attempt: Attempt) -> tuple[pa.Table, PartialAnswer]:
            nonlocal attempts
            left, attempts = len(plan.receivers) - attempts, attempts + 1
            share_ms = cancellation.remaining_ms() // left
            timeout_ms = max(1, min(ATTEMPT_MS_MAX, share_ms - min(WORDS_MS_MAX, share_ms // 10)))
            timed = msgspec.structs.replace(request, timeout_ms=timeout_ms)
            table, answer = self._source.ask(receiver.name, receiver.address, timed, attempt.on_give_up)
            _check_positions(receiver.name, plan, answer)
            return table, answer

        try:
            receiver, (table, answer) = self._receivers.ask(
                [QueryPeer(*candidate) for candidate in plan.receivers],
                ask,
                cancellation,
                (Unavailable, Unauthorized),
            )
        except PeersFailed as error:
            if any(isinstance(failure, NotReached) for _, failure in error.failures):
                raise NotReached(
                    f"replica set {plan.replica_set} has not read what was answered before of {query.cube}, "
                    f"partitions {list(plan.partitions)}",
                    found=str(error),
                    action="ask again; `rtolap coordinator status` says what the cube waits for",
                ) from error
            raise Unavailable(
                f"replica set {plan.replica_set} does not answer for {query.cube}, "
                f"partitions {list(plan.partitions)}",
                expected="one live receiver",
                found=str(error),
                action="start a receiver of the replica set: `rtolap receivers` shows their state",
            ) from error
        return receiver.name, table, answer

    def _ping(self, receiver: QueryPeer, within_s: float) -> None:
        self._source.ping(receiver.name, receiver.address, within_s)


def _outcome(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | RtolapError:
    try:
        return call(*args, **kwargs)
    except RtolapError as error:
        return error


def _count_refused(
    stats: ReadStats,
    replica_set: ReplicaSetPlan,
    refused: Mapping[int, Mapping[str, int]],
    example: Mapping[str, str],
) -> None:
    """Count the refused records of the replica set's partitions.

    Each record is counted once, whichever receiver answers.
    """
    for partition in replica_set.partitions:
        for reason, number in refused.get(partition, {}).items():
            stats.refused[reason] = stats.refused.get(reason, 0) + number
            if reason in example:
                stats.refused_example[reason] = example[reason]


def _is_needed(segment: LocalSegmentStats, read: CubeRead, snapshot: HistorySnapshot) -> bool:
    span = parse_segment_name(segment.segment)
    purged = snapshot.horizon_ms is not None and span.end_ms <= snapshot.horizon_ms
    beyond = segment.version > snapshot.versions.get(segment.segment, 0)
    return beyond and not purged and read.time.overlaps(span.start_ms, span.end_ms)


def _check_positions(receiver: str, plan: ReplicaSetPlan, answer: PartialAnswer) -> None:
    missing = [p for p in plan.partitions if p not in answer.positions]
    if missing:
        raise Unavailable(
            f"receiver {receiver} does not consume partitions {missing} of {plan.replica_set} yet"
        )


def _check_apart(cube: str, answers: Mapping[str, PartialAnswer]) -> None:
    """Raise CountedTwice if two answers hold the same partition.

    An answer holds all that its receiver consumes, including partitions that the plan gives to another
    replica set.
    """
    holders: dict[int, str] = {}
    for replica_set, answer in answers.items():
        for partition in answer.positions:
            other = holders.setdefault(partition, replica_set)
            if other != replica_set:
                raise CountedTwice(
                    f"replica sets {other} and {replica_set} both answer for partition {partition} of {cube}",
                    expected="each partition from one replica set",
                    found=f"{answer.receiver_id} holds partitions {sorted(answer.positions)}",
                    action="take a new snapshot",
                )
