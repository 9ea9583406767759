"""The wiring of a coordinator, which makes all its parts from its stores and its clock."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor

import rtolap
from rtolap.base.errors import NotFound, NotLeader, RtolapError, SessionLost, Unavailable
from rtolap.coordinator.alterations.alter import Alterations
from rtolap.coordinator.alterations.endings import Endings
from rtolap.coordinator.alterations.filling import Filling
from rtolap.coordinator.answers import as_message
from rtolap.coordinator.applications.host_lists import ListPlaces
from rtolap.coordinator.applications.owned import CONFIRMED_S, LiveCoordinators
from rtolap.coordinator.applications.registry import Applications
from rtolap.coordinator.assignment import Assignments, TopicsOf
from rtolap.coordinator.balance.recommendation import Recommendations
from rtolap.coordinator.builds.batches import Batches
from rtolap.coordinator.builds.queue import BUILDING_MAX, Builds
from rtolap.coordinator.checks import Checks
from rtolap.coordinator.closable import Closable
from rtolap.coordinator.cubes import Cubes
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.leadership import TICK_S, FencedStore, Leadership
from rtolap.coordinator.losses import Losses
from rtolap.coordinator.members import Members
from rtolap.coordinator.merging.merges import Merges
from rtolap.coordinator.metrics import CoordinatorMetrics
from rtolap.coordinator.moves import Moves
from rtolap.coordinator.other_owners import OpenClient, OtherOwners
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.coordinator.purge import GRACE_MS, Purge
from rtolap.coordinator.reassignment import Reassignments
from rtolap.coordinator.retirement.drains import Drains
from rtolap.coordinator.retirement.relief import Relief
from rtolap.coordinator.retirement.removals import Removals
from rtolap.coordinator.settling import Settling
from rtolap.coordinator.views import Views
from rtolap.coordinator.watermarks import Watermarks
from rtolap.metadata.cached import CachedStore
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.members.places import PlacementPolicy
from rtolap.metadata.requests import Requests
from rtolap.model.evolution.revision_life import RevisionState
from rtolap.object_store.address import refuse_pattern
from rtolap.object_store.store import open_store
from rtolap.protocols.coordinator import messages as wire

log = logging.getLogger(__name__)

CHECK_EVERY_TICKS = 10  # topics are looked at about every ten seconds


class Coordinator:
    """Starts to stand for election when it is made; `close` withdraws. The store stays the caller's.
    `open_client`: see `OtherOwners`."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        topics: TopicsOf,
        *,
        object_store_uri: str,
        url: str,
        open_client: OpenClient,
        list_places: ListPlaces = ListPlaces(),
        building_max: int = BUILDING_MAX,
        grace_ms: int = GRACE_MS,
        tick_s: float = TICK_S,
        confirmed_s: float = CONFIRMED_S,
        placement: PlacementPolicy = "warn",
        lost_after_s: float = 0.0,
    ) -> None:
        self.url = url.rstrip("/")
        self.leadership = Leadership(metadata.store, self.url, tick_s=tick_s)
        store = open_store(object_store_uri)
        refuse_pattern(store.root)  # before receivers stage anything there
        owned = FencedStore(metadata.store, self.leadership.node)  # what changes as an owner, leading or not
        # Ticks and health look at every cube and application again and again: what has not changed is not
        # read again.
        self._cached = CachedStore(owned)
        metadata = ClusterMetadata(FencedStore(metadata.store, self.leadership.fence), metadata.clock, store)
        self.metadata = metadata
        self.requests = Requests(metadata.store, metadata.clock)
        self._views = Views(metadata)
        self.heartbeats = Heartbeats(metadata.clock)
        self.owned_requests = Requests(owned, metadata.clock)
        self.applications = Applications(
            owned,
            metadata.clock,
            self.leadership.node,
            list_places,
            live=LiveCoordinators(self._cached, self.url),
            looked_at=self._cached,
            confirmed_s=confirmed_s,
        )
        self._closable = Closable(self.applications, metadata.clock)
        self._ticked = ClusterMetadata(FencedStore(self._cached, self.leadership.fence), metadata.clock)
        self.watermarks = Watermarks(
            self._ticked, self.heartbeats, self._closable, ClusterMetadata(self._cached, metadata.clock)
        )
        self._placement = rules = PlacementRules(metadata, placement)
        recommendations = Recommendations(metadata, self.heartbeats, rules)
        self.assignments = Assignments(metadata, topics, rules)
        self.reassignments = Reassignments(metadata, topics, recommendations, rules)
        self.moves = Moves(metadata, self.heartbeats)
        self.drains = Drains(metadata, recommendations, self.reassignments, self.moves, rules)
        self.relief = Relief(metadata, self._ticked, self.drains, lost_after_ms=round(lost_after_s * 1000))
        self.metrics = CoordinatorMetrics(
            metadata,
            self.leadership,
            self.heartbeats,
            self.watermarks,
            self._views,
            self.applications.own,
            rules,
            self.relief,
        )
        self.removals = Removals(metadata, self._views)
        self.checks = Checks(metadata, topics, self.assignments)
        self.purge = Purge(metadata, self._views, store, grace_ms=grace_ms)
        self._settling = Settling(metadata, self._views)
        self.builds = Builds(metadata, self._views, store, object_store_uri, building_max=building_max)
        self.batches = Batches(metadata, self._views, self.heartbeats, store, object_store_uri)
        self.merges = Merges(metadata, self._views, store, object_store_uri)
        self.alterations = Alterations(metadata, self._views, self.heartbeats, topics)
        self.members = Members(metadata, self.heartbeats, self._ticked, rules, self.relief.standing)
        self.cubes = Cubes(
            metadata,
            self._views,
            self.assignments,
            self.checks,
            self.heartbeats,
            self.watermarks,
            self.purge,
            self._closable,
            OtherOwners(self.applications, open_client),
            Losses(metadata, self._views, self.heartbeats, topics),
            self.moves,
            self.relief,
        )
        self._endings = Endings(
            metadata, self._views, self.assignments, self.cubes.drop_revision, grace_ms=grace_ms
        )
        self._filling = Filling(metadata, self._views, self.heartbeats)
        self._ticks = 0
        # Kafka may take its time to answer: the checks do not keep watermarks waiting. One run at a time.
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="coordinator-checks")
        self._checking: Future[None] | None = None
        self._reliever = ThreadPoolExecutor(1, thread_name_prefix="coordinator-relief")  # it asks Kafka, too
        self._relieving: Future[None] | None = None
        self.leadership.start(begin=self._begin, tick=self.tick)

    def close(self) -> None:
        self.leadership.close()
        self._checker.shutdown(wait=True, cancel_futures=True)
        self._reliever.shutdown(wait=True, cancel_futures=True)
        self.applications.close()
        self._views.close()
        self._cached.close()

    def health(self) -> wire.Health:
        return wire.Health(
            role="leader" if self.leadership.is_leader() else "standby",
            url=self.url,
            leader_url=self.leadership.leader_url(),
            zookeeper=self.metadata.store.connected(),
            applications=self.applications.own.count(),
            program=rtolap.__version__,
        )

    def cluster(self, cube: str | None = None) -> wire.ClusterInfo:
        """Return the state of all, with that of all cubes or of one. Raises NotFound for one that is not
        there."""
        return wire.ClusterInfo(
            leader_url=self.url,
            coordinators=self.metadata.coordinators(),
            receivers=tuple(self.members.receivers()),
            replica_sets=tuple(self.members.replica_sets()),
            cubes=tuple(self.cubes.statuses() if cube is None else [self.cubes.status(cube)]),
            applications=self.applications.owners(),
        )

    def heartbeat(self, request: wire.HeartbeatRequest) -> wire.HeartbeatResponse:
        self.heartbeats.record(request)
        published = self.watermarks.all_published()
        return wire.HeartbeatResponse(
            low_watermark_ms={
                cube: record.low_watermark_ms
                for cube, record in published.items()
                if record.low_watermark_ms is not None
            },
            windows={
                cube: tuple(as_message(wire.CompletenessInfo, known) for known in record.windows)
                for cube, record in published.items()
                if record.windows
            },
        )

    def completeness(self, application: str, cube: str, window_end_ms: int) -> wire.CompletenessInfo:
        """Return what this owner knows of a window of a cube. Raises NotOwner, NotFound."""
        running = self.applications.running(application)
        known = self._closable.forced(self.metadata.cube(cube), running, window_end_ms)
        return as_message(wire.CompletenessInfo, known)

    def retention(self, cube: str) -> wire.PurgeResult:
        """Run a cube's retention: see `Purge.retention`. Drop an older revision of which nothing is left.

        A repetition for one that was dropped is a run for the oldest revision that stands.
        """
        name = self.metadata.standing_revision(cube)
        purged = self.purge.retention(name)
        state = self._endings.run(name, drops=True)
        return purged.model_copy(update={"dropped": name}) if state is RevisionState.DROPPED else purged

    def require_leader(self) -> None:
        """Raise NotLeader, with the leader's address where there is one."""
        if self.leadership.is_leader():
            return
        leader = self.leadership.leader_url()
        if leader is None:
            raise NotLeader(f"coordinator {self.url} is a standby and knows of no leader; ask again soon")
        raise NotLeader(f"coordinator {self.url} is a standby, {leader} leads", leader_url=leader)

    def tick(self) -> None:
        """Do the periodic work, about once a second: an owner's for its applications, and the leader's."""
        with self.metrics.ticks.time():
            self._tick(leads=self.leadership.is_leader())

    def _tick(self, *, leads: bool) -> None:
        cubes = self._ticked.cubes() if leads or self.applications.own.count() else ()
        for cube in cubes:
            try:
                self.watermarks.tick(cube, leads=leads)
                if leads:
                    self.moves.tick(cube, self._ticked.control(cube))
            except NotFound:
                self.watermarks.forget(cube)  # dropped meanwhile
            except (SessionLost, Unavailable, NotLeader):
                raise
            except RtolapError as error:  # of its records: other cubes go on
                log.warning("the move of cube %s is looked at again: %s", cube, error)
        self.applications.tick()
        if leads:
            self._check_at_times(cubes)
            if self._relieving is None or self._relieving.done():
                self._relieving = self._reliever.submit(self._relieve)
        self._ticks += 1

    def _check_at_times(self, cubes: tuple[str, ...]) -> None:
        idle = self._checking is None or self._checking.done()
        if self._ticks % CHECK_EVERY_TICKS == 0 and idle:
            self._checking = self._checker.submit(self._check, cubes)

    def _check(self, cubes: tuple[str, ...]) -> None:
        try:
            self.heartbeats.keep_only(self.metadata.receivers())
            self.requests.forget()
            self._placement.look()
            self.checks.keep_only(cubes)
            for cube in cubes:
                self.checks.run(cube)
                self._finish(cube)
        except RtolapError as error:
            log.warning("the checks are tried again: %s", error)

    def _relieve(self) -> None:
        try:
            self.relief.tick()
        except RtolapError as error:
            log.warning("replica sets are looked at again: %s", error)
        except Exception:  # nobody asks the future
            log.exception("replica sets are looked at again")

    def _finish(self, cube: str) -> None:
        try:
            self._views.fresh(cube)  # from here on its watches keep it so
            self.purge.finish(cube)
            self._settling.run(cube)
            self._filling.run(cube)
            self._endings.run(cube)
        except NotFound:
            return  # dropped meanwhile
        except (SessionLost, Unavailable):
            raise
        except RtolapError as error:
            log.warning("what is purged or settled of cube %s is tried again: %s", cube, error)

    def _begin(self) -> None:
        self.heartbeats.clear()
        self.moves.clear()
        self.relief.clear()
        self.watermarks.clear()
        self._ticks = 0
