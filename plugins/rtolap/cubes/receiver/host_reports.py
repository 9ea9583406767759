"""A receiver as source of its cube's application: the leader of a replica set reports how far the hosts are.

A thread of its own takes one turn every REPORT_EVERY_S:

  1. take the new progress of the leader's partitions from the core, on the core's thread, so that it belongs
     to a state that the core has; all progress, for a new generation or a new client
  2. hand it to the client, which never waits for the network
  3. once the server has accepted the first report of a generation, note what a closing has to respect
     (`takeover`): the watermark of that moment, and later the ends of the logs

Without coordinators nothing is reported, and nothing closes by the application.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.cubes.receiver.closing_rules import Takeover
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.hosts.host_progress import PartitionProgress
from rtolap.metadata.records import CubeControl
from rtolap.model.application import CubeWatermark
from rtolap.watermark.reports import ProgressReports

log = logging.getLogger(__name__)

T = TypeVar("T")

REPORT_EVERY_S = 0.5  # the client sends a batch a second
CLOSE_TIMEOUT_S = 2.0  # what is not reported by then, a successor reports


class Ask(Protocol):
    """Runs on the core thread; see `background_work.Requests`."""

    def __call__(self, what: Callable[[], T], /) -> T: ...


class Client(ProgressReports, Protocol):
    """`watermark_client.client.WatermarkClient`, as far as a receiver needs it."""

    def has_taken(self, level: str, partition: int, generation: int) -> bool: ...

    def input_watermark(self, level: str) -> int | None: ...

    def approved_until(self) -> int | None: ...

    def close(self, timeout_s: float) -> None: ...


class TakeoverViews(Protocol):
    """`views.ViewSource`, as far as reports need it."""

    def generation(self, control: CubeControl) -> int | None: ...

    def offer_takeover(self, takeover: Takeover | None) -> None: ...


@dataclass(frozen=True)
class Taken:
    """The progress at one moment of the core.

    Attributes:
        partitions_count: number of the topic's partitions, as far as they are assigned.
    """

    generation: int | None
    progress: dict[int, PartitionProgress]
    partitions_count: int


@dataclass(eq=False)
class WatermarkReports:
    """`coordinators`: their base URLs; where none are known at present, the last ones are kept.
    `open_client`: such URLs → a client of the cube's application."""

    mark: CubeWatermark
    core: CubeReceiver
    views: TakeoverViews
    clock: Clock
    ask: Ask
    coordinators: Callable[[], Collection[str]]
    open_client: Callable[[tuple[str, ...]], Client]
    _urls: tuple[str, ...] = field(default=(), init=False)
    _client: Client | None = field(default=None, init=False)
    _said: int | None = field(default=None, init=False)  # the generation that the client was told all of
    _takeover: Takeover | None = field(default=None, init=False)
    _taken_s: float = field(default=float("-inf"), init=False)

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(REPORT_EVERY_S):
            try:
                self.turn()
            except RtolapError as error:
                self._said = None  # what was taken from the core may not have been reported
                log.info("watermark reports of %s wait: %s", self.core.schema.cube.name, error)
            except Exception:
                self._said = None
                log.exception("watermark reports of %s", self.core.schema.cube.name)
        self._drop_client()

    def turn(self) -> None:
        client = self._reach()
        if client is None:
            return
        taken = self.ask(partial(self._of_core, whole=False))
        if taken.generation is None:
            self._said = None
            self._note(None)
            return
        if taken.generation != self._said:
            taken = self.ask(partial(self._of_core, whole=True))
        self._say(client, taken)

    def _say(self, client: Client, taken: Taken) -> None:
        if taken.generation is None:
            return  # deposed between the two looks
        for partition, progress in taken.progress.items():
            if not progress.hosts and self.core.schema.table.watermark_records is not None:
                continue  # producers state it in every partition: where none has yet, they are awaited
            client.report_progress(
                self.mark.source,
                partition,
                taken.generation,
                progress.hosts,
                progress.latest_ms,
                progress.events,
                partitions=taken.partitions_count,
            )
        self._said = taken.generation
        self._look_at_takeover(client, taken.generation, frozenset(taken.progress))

    def _look_at_takeover(self, client: Client, generation: int, partitions: frozenset[int]) -> None:
        takeover = self._takeover
        if takeover is None or takeover.generation != generation or not partitions <= takeover.partitions:
            if not all(client.has_taken(self.mark.source, p, generation) for p in partitions):
                return
            reached = [client.input_watermark(level) for level in (self.mark.source, self.mark.sink)]
            watermark_ms = max((at for at in reached if at is not None), default=None)
            self._taken_s = self.clock.monotonic_s()
            self._note(Takeover(generation, partitions, watermark_ms, client.approved_until()))
        elif takeover.ends is None and self.core.progress.log_ends_requested_s >= self._taken_s:
            ends = dict(self.core.progress.log_ends)
            if partitions <= ends.keys():
                self._note(replace(takeover, ends=ends))

    def _note(self, takeover: Takeover | None) -> None:
        self._takeover = takeover
        self.views.offer_takeover(takeover)

    # -- on the core thread -----------------------------------------------------------------------------

    def _of_core(self, *, whole: bool) -> Taken:
        core = self.core
        generation = self.views.generation(core.control)
        hosts = core.progress.hosts
        assert hosts is not None, "a cube with an application keeps them"
        assigned = [p for partitions in core.control.assignment.values() for p in partitions]
        return Taken(
            generation,
            hosts.drain(core.state.positions, whole=whole),
            max(assigned, default=-1) + 1,
        )

    # -- the client -------------------------------------------------------------------------------------

    def _reach(self) -> Client | None:
        urls = tuple(sorted(self.coordinators()))
        if urls and urls != self._urls:
            self._drop_client()
            self._client, self._urls, self._said = self.open_client(urls), urls, None
        return self._client

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close(CLOSE_TIMEOUT_S)
            self._client = None
