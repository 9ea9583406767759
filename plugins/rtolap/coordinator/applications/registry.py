"""The applications of this coordinator: declared, running, and ticked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rtolap.base.clock import Clock
from rtolap.base.complete import complete
from rtolap.base.errors import (
    DefinitionError,
    NotFound,
    NotLeader,
    NotOwner,
    RtolapError,
)
from rtolap.coordinator.answers import as_message
from rtolap.coordinator.applications import explain, holders
from rtolap.coordinator.applications.declarations import Declarations
from rtolap.coordinator.applications.histories import Histories
from rtolap.coordinator.applications.host_lists import HostLists, ListPlaces
from rtolap.coordinator.applications.owned import CONFIRMED_S, LiveCoordinators, OwnApplications
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.definitions import Definitions
from rtolap.metadata.requests import Note
from rtolap.metadata.store import MetadataStore
from rtolap.model.application import Application
from rtolap.protocols.coordinator.messages import Definition
from rtolap.protocols.watermark import messages as wire
from rtolap.protocols.watermark.messages import ApplicationHistory, UnitsInfo

log = logging.getLogger(__name__)


class Applications:
    """The applications of one coordinator, as REST and the tick see them.

    `fence`, `live` and `confirmed_s` are those of `OwnApplications`. The commits of `store` require the
    fence. `looked_at` reads only what has changed, for the tick.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        fence: Callable[[], str | None],
        places: ListPlaces = ListPlaces(),
        live: LiveCoordinators | None = None,
        looked_at: MetadataStore | None = None,
        confirmed_s: float = CONFIRMED_S,
    ) -> None:
        self._records = ApplicationRecords(store)
        self._looked_at = self._records if looked_at is None else ApplicationRecords(looked_at)
        self._declarations = Declarations(self._records, Definitions(store), places)
        self._clock = clock
        self._lists = HostLists(store, clock, places)
        self.histories = Histories()
        self.own = OwnApplications(
            self._records, clock, fence, live, self.histories.forget, confirmed_s=confirmed_s
        )
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}  # of the last tick

    # -- definitions ------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return list(self._records.names())

    def create(self, definition: Definition) -> None:
        with self._counted(definition.get("name")):
            self._declarations.create(definition)

    def change(self, name: str, definition: Definition) -> None:
        """Change an application. A new epoch begins, in which everybody reports again; no published watermark
        falls."""
        with self._counted(name), self.own.lock:
            self.own.require_own(name)
            if self._declarations.change(name, definition):
                self.own.forget(name)

    def drop(self, name: str, note: Note | None = None) -> None:
        with self.own.lock:
            self.own.require_own(name)
            self._declarations.drop(name, note)
            self._forget(name)

    @contextmanager
    def _counted(self, name: object) -> Iterator[None]:
        """Count a refused definition under the application of its name, if there is one."""
        try:
            yield
        except RtolapError:
            running = self.own.known(name) if isinstance(name, str) else None
            if running is not None:
                running.count("refused_definitions")
            raise

    def info(self, name: str) -> wire.ApplicationInfo:
        running = self.running(name)
        with running.lock:
            counters = dict(running.counters)
            for source in running.sources.values():
                for counter, number in source.counters():
                    counters[counter] = counters.get(counter, 0) + number
            return wire.ApplicationInfo(
                name=name,
                definition=complete(running.application),
                epoch=running.epoch,
                owner=None if running.owner is None else running.owner.url,
                clients=len(running.sessions),
                units=len(running.units),
                hosts={level: s.counting for level, s in running.sources.items() if s.named},
                counters={**counters, "expired_units": running.units.expired},
                problems=tuple(
                    problem
                    for problem in (
                        self._problem(name),
                        *(s.list_problem for s in running.sources.values()),
                        *(s.breach_problem() for s in running.sources.values()),
                    )
                    if problem
                ),
                approvals=tuple(as_message(wire.ApprovalInfo, each) for each in running.approvals),
            )

    # -- asking -----------------------------------------------------------------------------------------

    def running(self, name: str) -> RunningApplication:
        """Return an application that runs here; see `OwnApplications.running`."""
        return self.own.running(name)

    def definition(self, name: str) -> Application:
        """Return a definition as it stands in ZooKeeper, whoever runs the application. Raises NotFound."""
        return self._looked_at.definition(name)

    def owners(self) -> tuple[wire.ApplicationOwner, ...]:
        """Return every application with the address of its owner, whichever coordinator that is."""
        return tuple(
            wire.ApplicationOwner(application=name, owner=self.owner_url(name))
            for name in self._records.names()
        )

    def owner_url(self, name: str) -> str | None:
        """Return the owner's address; None while the application moves, and where it does not exist."""
        state = self._records.state(name)
        owner = None if state is None else self._records.standing_owner(state)
        return None if owner is None else owner.url

    def watermarks(self, name: str) -> wire.ApplicationWatermarks:
        return explain.watermarks(self.running(name), self._clock.now_ms())

    def hosts(self, name: str, level: str | None, limit: int) -> wire.HostsInfo:
        running = self.running(name)
        if level is None:
            if len(running.sources) > 1:
                raise DefinitionError("which source?", expected=f"level, one of {', '.join(running.sources)}")
            level = next(iter(running.sources))
        return explain.hosts(running, level, self._clock.now_ms(), limit)

    def units(self, name: str, level: str | None, limit: int) -> UnitsInfo:
        return holders.units(self.running(name), level, self._clock.now_ms(), limit)

    def history(
        self, name: str, level: str | None, since_ms: int | None, until_ms: int | None, samples: int
    ) -> ApplicationHistory:
        running = self.running(name)
        return self.histories.answer(running, self._clock.now_ms(), level, since_ms, until_ms, samples)

    def explain(self, name: str, window_end_ms: int) -> wire.Explanation:
        return explain.explain(self.running(name), window_end_ms, self._clock.now_ms())

    # -- the periodic work ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Take what should be run here, run the tick of each application by itself, and give up what another
        coordinator should run. What fails with one is logged, and tried again a second later."""
        alive: set[tuple[str, int]] = set()
        for name in self._looked_at.names():
            try:
                if self.own.is_chosen(name):
                    self._tick(name, alive)
                else:
                    self.own.give_up(name)
                self._note(name, None)
            except NotFound:
                self._forget(name)  # dropped meanwhile
            except NotLeader:
                raise
            except RtolapError as error:
                self._note(name, f"application {name} publishes nothing for now: {error}")
        self._lists.keep_only(alive)

    def _tick(self, name: str, alive: set[tuple[str, int]]) -> None:
        running = self.own.owned(name)
        if running is None:
            return
        alive.add((name, running.epoch))
        self._lists.start(running)
        try:
            running.tick()
            running.confirm()
        except NotOwner:
            self.own.end(running)
        else:
            self.histories.record(running, self._clock.now_ms())

    def _note(self, name: str, problem: str | None) -> None:
        with self._lock:
            if problem is not None and self._problems.get(name) != problem:
                log.warning("%s", problem)
            if problem is None:
                self._problems.pop(name, None)
            else:
                self._problems[name] = problem

    def _problem(self, name: str) -> str | None:
        with self._lock:
            return self._problems.get(name)

    def settle(self) -> None:
        """Wait for the host lists that are being fetched."""
        self._lists.settle()

    def _forget(self, name: str) -> None:
        with self._lock:
            self._problems.pop(name, None)
        self.own.forget(name)
        self.histories.forget(name)

    def close(self) -> None:
        self._lists.close()
