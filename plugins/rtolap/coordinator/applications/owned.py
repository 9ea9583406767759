"""The applications that this coordinator owns: taken, answered from memory, and given up.

They are spread over coordinators by rendezvous hashing: the owner of an application is the coordinator whose
URL hashes highest together with the application's name. A coordinator that comes takes applications from all
others, about as many from each; one that goes leaves its applications to all others. No other application
moves. By the orderings of docs/decisions/0052-owners-of-applications.md:

    take      1. nobody's node stands as owner   2. commit owner and epoch   3. answer
    give up   1. answer no more                  2. commit: no owner, the epoch is over
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable

from rtolap.base.clock import Clock
from rtolap.base.errors import Corrupted, NotFound, NotLeader, NotOwner
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.coordinator.leadership import FencedStore
from rtolap.metadata import paths
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.election import identities
from rtolap.metadata.records import Owner
from rtolap.metadata.store import MetadataStore

log = logging.getLogger(__name__)

# A session lives on for longer than this after ZooKeeper has answered it: see `Settings.session_timeout_s`.
CONFIRMED_S = 1.5
MOVES = ("taken", "given_up", "lost")


class LiveCoordinators:
    """The coordinators that live, as the one whose address is `url` sees them. `store` may read only what has
    changed: a view that is old for a moment delays moves of applications, and makes no mistake."""

    def __init__(self, store: MetadataStore, url: str) -> None:
        self._store = store
        self.url = url

    def urls(self) -> frozenset[str]:
        """Return the addresses of all, and always of this one."""
        return frozenset({self.url, *identities(self._store, paths.ELECTION)})


class OwnApplications:
    """The applications of one coordinator. It is thread-safe. What runs belongs to the `fence`, and ends when
    that is another one: it is the path of this coordinator's own node (`store.Election.node`).

    `live`: the coordinators that share the applications; None: this one has all of them. An answer is from
    memory for `confirmed_s` after ZooKeeper has confirmed the epoch. `ended` is called with the name of what
    runs here no more, because others may run it.

    Attributes:
        lock: held while a definition is changed, so that no epoch begins of it.
        moves: by each of `MOVES`, how often that was done.
    """

    def __init__(
        self,
        records: ApplicationRecords,
        clock: Clock,
        fence: Callable[[], str | None],
        live: LiveCoordinators | None,
        ended: Callable[[str], None],
        *,
        confirmed_s: float = CONFIRMED_S,
    ) -> None:
        self._records = records
        self._clock = clock
        self._fence = fence
        self._live = live
        self._ended = ended
        self._confirmed_s = confirmed_s
        self.lock = threading.RLock()
        self.moves: Counter[str] = Counter()
        self._term: str | None = None
        self._running: dict[str, RunningApplication] = {}
        self._leaving: dict[str, RunningApplication] = {}  # answered no more, and not given up yet

    def running(self, name: str) -> RunningApplication:
        """Return an application that is this coordinator's.

        Begins its epoch where nobody runs it and it should run here. Raises NotFound; NotOwner, with the
        owner's address; NotLeader where this coordinator's session is not known to live.
        """
        with self.lock:
            term = self._present_term()
            running = self._running.get(name)
            if running is not None and self._goes_on(running):
                return running
            definition = self._records.definition(name)
            owner = self._taken_by(name, term)
            records = self._records
            if owner is not None:  # of this session only, whichever one commits later
                records = ApplicationRecords(FencedStore(records.store, lambda: owner.node))
            running = RunningApplication(definition, records, self._clock, owner)
            self._running[name] = running
            self.moves["taken"] += 1
            return running

    def owned(self, name: str) -> RunningApplication | None:
        """Return an application that is this coordinator's, or None where another one should run it: then
        nothing is requested. Raises NotFound."""
        with self.lock:
            runs = name in self._running
        if not runs and not self.is_chosen(name):
            return None
        try:
            return self.running(name)
        except NotOwner:
            return None  # whose owner has not given it up yet, or whose session has not ended

    def known(self, name: str) -> RunningApplication | None:
        """Return what runs here, whatever became of its epoch."""
        with self.lock:
            return self._running.get(name)

    def count(self) -> int:
        """Return how many applications run here."""
        with self.lock:
            return len(self._running) if self._fence() == self._term else 0

    def require_own(self, name: str) -> None:
        """Require that the application may run here. Begin nothing, so that one that cannot be read may be
        dropped. Raises NotOwner, NotLeader."""
        with self.lock:
            term = self._present_term()
            running = self._running.get(name)
            if running is None or not self._goes_on(running):
                self._taken_by(name, term)

    def is_chosen(self, name: str) -> bool:
        """Return True if this coordinator should run it, whoever does."""
        return self._live is None or chosen_owner(name, self._live.urls()) == self._live.url

    def end(self, running: RunningApplication) -> None:
        """Run it no more: its epoch is over, because it was changed, dropped or taken meanwhile."""
        name = running.application.name
        log.info("epoch %s of application %s is over", running.epoch, name)
        with self.lock:
            if self._running.get(name) is running:
                self._lose(name)

    def give_up(self, name: str) -> None:
        """Leave to another coordinator what runs here. A repetition goes on where the call before failed."""
        with self.lock:
            self._present_term()
            running = self._running.pop(name, None)
            if running is not None:
                self._leaving[name] = running
                self._ended(name)
            leaving = self._leaving.get(name)
        if leaving is not None:
            leaving.give_up()
            log.info("application %s is given up to another coordinator", name)
            with self.lock:
                self._leaving.pop(name, None)
                self.moves["given_up"] += 1

    def forget(self, name: str) -> None:
        """End what runs here: the application was changed or dropped."""
        with self.lock:
            self._running.pop(name, None)
            self._leaving.pop(name, None)

    def _present_term(self) -> str:
        """Return the present fence, and lose what ran under another one. The caller locks."""
        term = self._fence()
        if term is None:
            raise NotLeader("this coordinator's session is not known to live; ask again")
        if term != self._term:
            for name in list(self._running):
                self._lose(name)
            self._leaving.clear()
            self._term = term
        return term

    def _goes_on(self, running: RunningApplication) -> bool:
        """Return False, and lose the application, if its epoch is over. The caller locks."""
        if self._live is None or self._clock.monotonic_s() - running.confirmed_s < self._confirmed_s:
            return True
        try:
            running.confirm()
        except (NotOwner, NotFound):
            self._lose(running.application.name)
            return False
        return True

    def _lose(self, name: str) -> None:
        self._running.pop(name)
        self._ended(name)
        self.moves["lost"] += 1

    def _taken_by(self, name: str, term: str) -> Owner | None:
        """Return this coordinator as the owner of an application that it may run. Raises NotOwner."""
        if self._live is None:
            return None
        own = Owner(term, self._live.url)
        try:
            state = self._records.state(name)
        except Corrupted:
            state = None  # who may drop it is known all the same
        if state is not None and state.owner != own:
            standing = self._records.standing_owner(state)
            if standing is not None:
                raise self._not_owner(name, standing.url)
        if (state is None or state.owner != own) and not self.is_chosen(name):
            raise self._not_owner(name, chosen_owner(name, self._live.urls()))
        return own

    def _not_owner(self, name: str, url: str) -> NotOwner:
        """Return the error. It names no address if that is this one: a process that ended here owns the
        application until its session is over."""
        own = self._live is not None and url == self._live.url
        return NotOwner(
            f"application {name} is run by coordinator {url}" + (", whose session has to end" if own else ""),
            leader_url=None if own else url,
        )


def chosen_owner(application: str, urls: Iterable[str]) -> str:
    """Return the URL that should own the application, whatever the order of `urls`, of which there is one."""
    return max(urls, key=lambda url: (_weight(application, url), url))


def _weight(application: str, url: str) -> bytes:
    """`hash` differs from process to process; no name holds a NUL."""
    return hashlib.blake2b(f"{application}\0{url}".encode(), digest_size=16).digest()
