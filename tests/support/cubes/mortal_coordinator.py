"""The coordinator's work in the in-process cluster, by a process that may die at any of its commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rtolap.base.clock import Clock
from rtolap.coordinator.alterations.alter import Alterations
from rtolap.coordinator.alterations.endings import Endings
from rtolap.coordinator.assignment import Assignments
from rtolap.coordinator.balance.recommendation import Recommendations
from rtolap.coordinator.builds.batches import Batches
from rtolap.coordinator.builds.queue import Builds
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.merging.merges import Merges
from rtolap.coordinator.moves import Moves
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.coordinator.purge import Purge
from rtolap.coordinator.reassignment import Reassignments
from rtolap.coordinator.retirement.drains import Drains
from rtolap.coordinator.retirement.relief import Relief
from rtolap.coordinator.settling import Settling
from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.store import Operation
from rtolap.model.evolution.revision_life import RevisionState
from rtolap.object_store.store import open_store

from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

LOST_AFTER_MS = 20_000


class Killed(Exception):
    """The process is gone: who sent the request gets no response."""


class MortalStore(MemoryStore):
    """`die` lets the process end at the n-th commit from now: before it is sent, or once it is persisted."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        super().__init__(ensemble)
        self._dies: tuple[int, Literal["before", "after"]] | None = None

    def die(self, commits: int, when: Literal["before", "after"]) -> None:
        self._dies = (commits, when)

    def live_on(self) -> None:
        self._dies = None

    def commit(self, operations: Sequence[Operation]) -> None:
        left, when = self._dies or (-1, "after")
        if left == 0 and when == "before":
            raise Killed
        super().commit(operations)
        if left == 0:
            raise Killed
        if self._dies is not None:
            self._dies = (left - 1, when)


class _NoneWaitedFor(Heartbeats):
    """Reports of nobody, for whom nobody waits: a change is exact whatever receivers hold."""

    def unheard(self, *known: Any, **more: Any) -> dict[str, list[str]]:
        return {}


class MortalCoordinator:
    """A leader's session and what it does on request. A new one takes over with a session of its own."""

    def __init__(self, ensemble: MemoryEnsemble, clock: Clock, admin: MemoryAdmin, store_uri: str) -> None:
        self.session = MortalStore(ensemble)
        store = open_store(store_uri)
        metadata = ClusterMetadata(self.session, clock, store)
        self._views = Views(metadata)
        self.builds = Builds(metadata, self._views, store, store_uri)
        self.merges = Merges(metadata, self._views, store, store_uri)
        self.alterations = Alterations(metadata, self._views, _NoneWaitedFor(clock), lambda cluster: admin)
        self._settling = Settling(metadata, self._views)
        self.purge = Purge(metadata, self._views, store, grace_ms=0)
        self.heartbeats = Heartbeats(clock)
        self.batches = Batches(metadata, self._views, self.heartbeats, store, store_uri)
        rules = PlacementRules(metadata, "strict_racks")
        recommendations = Recommendations(metadata, self.heartbeats, rules)
        self.reassignments = Reassignments(metadata, lambda cluster: admin, recommendations, rules)
        self.moves = Moves(metadata, self.heartbeats)
        assignments = Assignments(metadata, lambda cluster: admin, rules)
        self._endings = Endings(metadata, self._views, assignments, self._drop)
        self.drains = Drains(metadata, recommendations, self.reassignments, self.moves, rules)
        self.relief = Relief(metadata, metadata, self.drains, lost_after_ms=LOST_AFTER_MS)
        self._metadata = metadata

    def tick_move(self, cube: str) -> bool:
        return self.moves.tick(cube, self._metadata.control(cube))

    def end_revision(self, cube: str) -> RevisionState | None:
        """Take the steps to the end of an older revision that are due, but for its drop."""
        return self._endings.run(cube)

    def _drop(self, cube: str) -> None:
        raise AssertionError(f"nobody has asked to drop {cube}")

    def settle(self, cube: str) -> int:
        self._views.fresh(cube)
        return self._settling.run(cube)

    def close(self) -> None:
        self.session.live_on()
        self._views.close()
        self.session.close()
