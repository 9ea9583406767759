"""The applications of this leader: declared, running, and ticked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError, NotFound, NotLeader, Refused, RtolapError
from rtolap.coordinator.applications import explain, holders
from rtolap.coordinator.applications.histories import Histories
from rtolap.coordinator.applications.host_lists import HostLists, ListPlaces
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.definitions import Definitions
from rtolap.metadata.requests import Note
from rtolap.metadata.store import MetadataStore
from rtolap.model.application import Application
from rtolap.model.validation.application import cube_watermark_problems, validate_application
from rtolap.protocols.coordinator.messages import Definition
from rtolap.protocols.watermark import messages as wire
from rtolap.protocols.watermark.messages import ApplicationHistory, UnitsInfo

log = logging.getLogger(__name__)


class _Declarations:
    """Declares, changes and drops applications, and refuses what would break cubes that close by them.

    The caller locks, so that no epoch begins of what is being changed.
    """

    def __init__(self, records: ApplicationRecords, definitions: Definitions, places: ListPlaces) -> None:
        self._records = records
        self._definitions = definitions
        self._places = places

    def create(self, definition: Definition) -> None:
        """Create an application. Raises DefinitionError, and Refused if another one has the name."""
        self._records.create(self._application(definition))

    def change(self, name: str, definition: Definition) -> bool:
        """Change the definition.

        Return False if it is the same already. Raises DefinitionError, NotFound, Refused.
        """
        application = self._application(definition)
        if application.name != name:
            raise DefinitionError(
                "an application cannot be renamed", expected=f"name {name}", found=application.name
            )
        if self._records.definition(name) == application:
            return False
        for cube in self._cubes_of(name):
            _refuse_what_misses(self._definitions, cube, application)
        self._records.change(application)
        return True

    def drop(self, name: str, note: Note | None = None) -> None:
        """Drop an application. Raises NotFound, and Refused where cubes close by it: they would wait for
        ever."""
        cubes = self._cubes_of(name)
        if cubes:
            raise Refused(
                f"application {name} cannot be dropped",
                found=f"cubes that close by it: {', '.join(cubes)}",
                action="drop them first",
            )
        self._records.drop(name, note)

    def _application(self, definition: Definition) -> Application:
        try:
            application = convert(definition, Application)
        except msgspec.ValidationError as error:
            raise DefinitionError("not an application definition", found=str(error)) from error
        validate_application(application)
        self._places.check_application(application)
        return application

    def _cubes_of(self, application: str) -> list[str]:
        cubes = []
        for name in self._definitions.cubes():
            try:
                mark = self._definitions.cube(name).watermark
            except NotFound:
                continue  # dropped meanwhile
            if mark is not None and mark.application == application:
                cubes.append(name)
        return cubes


def _refuse_what_misses(definitions: Definitions, cube: str, after: Application) -> None:
    problems = cube_watermark_problems(definitions.schema(cube), {after.name: after})
    if problems:
        raise Refused(
            f"application {after.name} cannot be changed so, cube {cube} closes by it: {problems[0].message}",
            expected=problems[0].expected,
            found=problems[0].found,
            action=f"keep what cube {cube} needs, or drop it first",
        )


class Applications:
    """`fence` as `store.Election.fence` gives it: what runs belongs to one term of leadership."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        fence: Callable[[], str | None],
        places: ListPlaces = ListPlaces(),
    ) -> None:
        self._records = ApplicationRecords(store)
        self._declarations = _Declarations(self._records, Definitions(store), places)
        self._clock = clock
        self._fence = fence
        self._lists = HostLists(store, clock, places)
        self.histories = Histories()
        self._lock = threading.Lock()
        self._term: str | None = None
        self._running: dict[str, RunningApplication] = {}
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
        with self._counted(name), self._lock:
            if self._declarations.change(name, definition):
                self._running.pop(name, None)

    def drop(self, name: str, note: Note | None = None) -> None:
        with self._lock:
            self._declarations.drop(name, note)
            self._running.pop(name, None)
            self._problems.pop(name, None)
            self.histories.forget(name)

    @contextmanager
    def _counted(self, name: object) -> Iterator[None]:
        """Count a refused definition under the application of its name, if there is one."""
        try:
            yield
        except RtolapError:
            with self._lock:
                running = self._running.get(name) if isinstance(name, str) else None
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
                definition=msgspec.to_builtins(running.application),
                epoch=running.epoch,
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
                approvals=tuple(
                    wire.ApprovalInfo(until_ms=a.until_ms, by=a.by, reason=a.reason, at_ms=a.at_ms)
                    for a in running.approvals
                ),
            )

    # -- asking -----------------------------------------------------------------------------------------

    def running(self, name: str) -> RunningApplication:
        """Return the running application, and begin its epoch where this leader has not yet. Raises NotFound,
        NotLeader."""
        with self._lock:
            term = self._fence()
            if term is None:
                raise NotLeader("this coordinator leads no more; ask the leader")
            if term != self._term:
                self._running.clear()
                self.histories.clear()
                self._term = term
            running = self._running.get(name)
            if running is None:
                definition = self._records.definition(name)
                running = self._running[name] = RunningApplication(definition, self._records, self._clock)
            return running

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

    # -- the leader's periodic work ----------------------------------------------------------------------

    def tick(self) -> None:
        """Run the tick of every application by itself: what fails with one is logged, and tried again a
        second later."""
        alive: set[tuple[str, int]] = set()
        for name in self._records.names():
            try:
                self._tick(name, alive)
                self._note(name, None)
            except NotFound:
                self._forget(name)  # dropped meanwhile
            except NotLeader:
                raise
            except RtolapError as error:
                self._note(name, f"application {name} publishes nothing for now: {error}")
        self._lists.keep_only(alive)

    def _tick(self, name: str, alive: set[tuple[str, int]]) -> None:
        running = self.running(name)
        alive.add((name, running.epoch))
        self._lists.start(running)
        try:
            running.tick()
        except NotLeader:
            if self._runs(running):
                raise
            log.info("application %s was changed or dropped while it was ticked", name)
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

    def _runs(self, running: RunningApplication) -> bool:
        """Return whether it still runs, and no other definition has taken its place."""
        with self._lock:
            return self._running.get(running.application.name) is running

    def _forget(self, name: str) -> None:
        with self._lock:
            self._running.pop(name, None)
            self._problems.pop(name, None)
            self.histories.forget(name)

    def close(self) -> None:
        self._lists.close()
