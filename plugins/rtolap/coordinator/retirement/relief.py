"""The leader's work on replica sets that are drained, missing or lost: `states` says what, `drains` moves.

All that it goes on with stands in records: the mark of a drain with its bound of cubes, and since when no
receiver lives, in the replica set's record; each move in its cube's control. So each leader goes on where the
one before has stopped, and a crash between two steps leaves what the next look finds:

  1. note          crash: the time counts from the note on
  2. plan moves    crash: `Moves` lets them stand; the next leader plans the rest. Of a lost replica set, each
                   is one commit
  3. keep          crash: the next look cancels moves that are planned for a replica set that lives again
"""

from __future__ import annotations

import logging
import threading

import msgspec

from rtolap.base.errors import NotFound, RtolapError, SessionLost, Unavailable
from rtolap.coordinator.reassignment import MoveCause
from rtolap.coordinator.retirement.drains import Drains, drain_cause
from rtolap.coordinator.retirement.states import Action, Duty, Looked, SetState, duties
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ReplicaSetRecord
from rtolap.metadata.updates import read_each
from rtolap.model.instants import utc_text

log = logging.getLogger(__name__)


class SeenSet(msgspec.Struct, frozen=True):
    """A replica set at the leader's last look.

    Attributes:
        missing_since_ms: time since which none of its receivers lives; None: one lives, or it is new to the
            leader.
        holds: whether it has partitions, or gets some by a move that runs.
    """

    state: SetState
    missing_since_ms: int | None
    holds: bool


class Relief:
    """`tick` on one thread; the rest on any.

    Attributes:
        followed: the same metadata over a `CachedStore`, for the look; what is done reads what stands.
        lost_after_ms: time without a living receiver after which partitions move to others; 0: never.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        followed: ClusterMetadata,
        drains: Drains,
        *,
        lost_after_ms: int,
    ) -> None:
        self._metadata = metadata
        self._followed = followed
        self._drains = drains
        self._lost_after_ms = lost_after_ms
        self._lock = threading.Lock()
        self._seen: dict[str, SeenSet] = {}

    def clear(self) -> None:
        """Forget what was seen, as a fresh leader begins."""
        with self._lock:
            self._seen.clear()
        self._drains.clear()

    def tick(self) -> None:
        """Look at all replica sets once, and do what is due. An error of one does not hold up the others."""
        records = self._followed.replica_sets()
        sets = self._looked(records)
        due = duties(sets, self._metadata.clock.now_ms(), self._lost_after_ms)
        with self._lock:
            self._seen = {
                name: SeenSet(
                    duty.state, None if sets[name].lives else sets[name].missing_since_ms, sets[name].holds
                )
                for name, duty in due.items()
            }
        self._drains.note_lost(frozenset(name for name, duty in due.items() if duty.state is SetState.LOST))
        for name, duty in sorted(due.items()):
            try:
                self._do(name, records[name], sets[name], duty)
            except NotFound:
                continue  # removed meanwhile
            except (SessionLost, Unavailable):
                raise
            except RtolapError as error:
                log.warning("replica set %s: what is due is tried again: %s", name, error)

    def seen(self) -> dict[str, SeenSet]:
        """Return the replica sets at the last look, by name."""
        with self._lock:
            return dict(self._seen)

    def planned(self) -> dict[str, int]:
        """Return, by replica set, how many moves this coordinator has planned to relieve it."""
        return self._drains.planned()

    def standing(self, name: str) -> tuple[str, str | None]:
        """Return the state of a replica set at the last look, "" before the first, and its problem."""
        known = self.seen().get(name)
        return ("", None) if known is None else (known.state.value, self.problem(name))

    def problem(self, name: str) -> str | None:
        """Return what is wrong with a replica set that has partitions, and what follows; None: nothing is."""
        known = self.seen().get(name)
        if known is None or known.missing_since_ms is None or not known.holds:
            return None
        missing = f"no receiver of replica set {name} has lived since {utc_text(known.missing_since_ms)}"
        if known.state is not SetState.MISSING:
            return f"{missing}: its partitions move to others"
        if self._lost_after_ms:
            due = utc_text(known.missing_since_ms + self._lost_after_ms)
            return (
                f"{missing}: its partitions move to others from {due} on, unless most replica sets are away"
            )
        return f"{missing}: start one, or `rtolap receivers drain {name}`"

    def _looked(self, records: dict[str, ReplicaSetRecord]) -> dict[str, Looked]:
        live = set(self._followed.live_receivers())
        controls = list(read_each(self._followed.cubes(), self._followed.control).found.values())
        relieved = {control.next.relieves for control in controls if control.next is not None}
        return {
            name: Looked(
                draining=record.draining,
                lives=not live.isdisjoint(record.receivers),
                holds=any(control.has_partitions_in(name) for control in controls),
                relieved=name in relieved,
                missing_since_ms=record.missing_since_ms,
            )
            for name, record in records.items()
        }

    def _do(self, name: str, record: ReplicaSetRecord, looked: Looked, duty: Duty) -> None:
        for action in duty.actions:
            if action is Action.NOTE and looked.missing_since_ms is None:
                self._metadata.note_missing(name, self._metadata.clock.now_ms())
                log.warning("replica set %s: none of its receivers lives", name)
            elif action is Action.FORGET and looked.missing_since_ms is not None:
                self._metadata.note_missing(name, None)
                log.info("replica set %s: a receiver lives again", name)
            elif action is Action.KEEP and looked.relieved:
                self._drains.keep(name)
            elif action is Action.MOVE:
                self._drains.go_on(name, drain_cause(name), record.cubes_max)
            elif action is Action.GIVE:
                since_ms = record.missing_since_ms
                assert since_ms is not None, "a replica set is lost after it was missing"
                self._drains.go_on(name, lost_cause(name, since_ms, self._lost_after_ms))


def lost_cause(name: str, since_ms: int, lost_after_ms: int) -> MoveCause:
    """Return the cause of moves off a replica set that is lost."""
    return MoveCause(
        name,
        f"no receiver of replica set {name} had lived since {utc_text(since_ms)}, "
        f"for longer than RTOLAP_REPLICA_SET_LOST_AFTER_S={lost_after_ms / 1000:g}",
        True,
        lambda record: record.missing_since_ms == since_ms,
    )
