"""The process of a publication: it waits until it leads, looks again and again, and says how far it is.

A look that fails is repeated, later and later up to BACKOFF_MAX_S. Nothing is lost by that: what is published
follows from the records and the table alone.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from rtolap.base.clock import Clock
from rtolap.base.decoding import copied
from rtolap.base.errors import CommitConflict, NotFound, RtolapError
from rtolap.metadata import paths
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications, PublicationStatus
from rtolap.metadata.store import Check, Election, MetadataStore, Operation
from rtolap.model.publication import Publication
from rtolap.object_store.store import ObjectStore
from rtolap.publish.metrics import PublishMetrics
from rtolap.publish.publisher import Look, Publisher
from rtolap.publish.table import published_table

log = logging.getLogger(__name__)

BACKOFF_S, BACKOFF_MAX_S = 1.0, 300.0
_STANDBY_S = 5.0


class PublicationProcess:
    """Publishes while it leads; another process of the publication stands by.

    Args:
        identity: names this process among the candidates.
        stopping: ends `run` once it is set.
    """

    def __init__(
        self,
        name: str,
        store: MetadataStore,
        files: ObjectStore,
        clock: Clock,
        metrics: PublishMetrics,
        *,
        identity: str,
        stopping: threading.Event,
        seed: int | None = None,
    ) -> None:
        self.name = name
        self._store = store
        self._metadata = ClusterMetadata(store, clock)
        self._records = Publications(store)
        self._files = files
        self._clock = clock
        self._metrics = metrics
        self._identity = identity
        self._stopping = stopping
        self._woken = threading.Event()
        self._random = random.Random(seed)
        self._failures = 0
        self._term: int | None = None
        self._open: Publisher | None = None
        self._closing = ExitStack()  # of what is open

    def run(self) -> None:
        """Return once stopped, or once the publication was dropped."""
        election = self._store.elect(paths.publication_lead(self.name), self._identity, self._woken.set)
        try:
            while not self._stopping.is_set():
                if not election.is_leader():
                    self._close()
                    self._wait(_STANDBY_S)
                    continue
                pause_s = self.step(election)
                if pause_s is None:
                    return
                self._wait(pause_s)
        finally:
            self._close()
            election.close()

    def step(self, election: Election) -> float | None:
        """Look once. Returns the time until the next look in seconds, None where the publication is gone."""
        try:
            declared = self._records.declaration(self.name)
        except NotFound:
            return None
        except RtolapError as error:
            return self._failed(error)
        if declared.dropping:
            log.info("publication %s is being dropped", self.name)
            return None
        publication = declared.publication
        try:
            look = self._publisher(publication, election).look()
            self._succeeded(look)
        except CommitConflict as error:
            self._close()
            log.warning("another publisher of %s was first: %s", self.name, error)
            return self._failed(error)
        except RtolapError as error:
            self._close()
            return self._failed(error)
        return publication.batch.every_ms / 1000

    def _publisher(self, publication: Publication, election: Election) -> Publisher:
        """Return the publisher of this term; another one after each failure and each change of what is
        declared."""
        term = election.term()
        if self._open is None or self._open.publication != publication or term != self._term:
            self._close()
            table = self._closing.enter_context(published_table(self._metadata, publication, self._files))
            publisher = Publisher(
                table, self._metadata, self._clock, require=lambda: _leads(election, self.name)
            )
            self._closing.callback(publisher.close)
            self._open, self._term = publisher, term
        return self._open

    def _succeeded(self, look: Look) -> None:
        self._failures = 0
        self._metrics.looked(look)
        if look.committed:
            log.info("publication %s: %s new snapshots up to %s", self.name, look.committed, look.snapshot_id)
        now_ms = self._clock.now_ms()
        status = copied(
            PublicationStatus, look, publisher=self._identity, looked_ms=now_ms, error=None, failures=0
        )
        self._records.write_status(self.name, status)

    def _failed(self, error: RtolapError) -> float:
        """Say why, and return the pause: twice the one before, and a random share of it."""
        self._failures += 1
        self._metrics.failed(error.code)
        log.warning("publication %s is tried again: %s", self.name, error)
        try:
            self._records.note_failure(self.name, self._identity, str(error), self._failures)
        except RtolapError as unwritten:
            log.warning("the status of publication %s is not written: %s", self.name, unwritten)
        pause_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(self._failures - 1, 30))
        return pause_s * (0.5 + self._random.random() / 2)

    def _wait(self, pause_s: float) -> None:
        """Wait, and be awake for a signal: see `base.stopping`."""
        deadline_s = self._clock.monotonic_s() + pause_s
        while not self._stopping.is_set() and not self._woken.is_set():
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                break
            self._stopping.wait(min(left_s, 0.5))
        self._woken.clear()

    def _close(self) -> None:
        self._open = None
        self._closing.close()


def _leads(election: Election, name: str) -> Sequence[Operation]:
    """Return the requirements of a commit: this process leads, and the publication is there."""
    fence = election.fence()
    if fence is None:
        raise CommitConflict(f"this process leads publication {name} no more")
    return (Check(fence, -1), Check(paths.publication_definition(name), -1))
