"""Reports progress and oldest work to the coordinator, and knows the watermarks: for sources, operators and
sinks.

    client = WatermarkClient(urls, token, "access_logs")
    client.report_progress("web_servers", partition, generation, hosts, latest_ms)   # returns at once
    client.set_oldest_work("sessions", "worker-3", key_group, oldest_ms)
    if client.may_close(window_end_ms, timeout_s=60): ...

Reporting merges into what is still to be said and never waits for the network: one thread sends a batch
about each second. While no leader answers, the newest state per key is kept, which is bounded by hosts and
partitions, not by time. A batch is repeated unchanged until it is answered; a new leader is told everything
again.

Order matters to be exact: say the oldest work of an event before the progress that lies beyond it. Both may
stand in one batch.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Sequence
from types import TracebackType

import httpx
import msgspec
from numpy import asarray, int64
from numpy.typing import ArrayLike

from rtolap.base.errors import DefinitionError, Refused, RtolapError, Unavailable
from rtolap.wire.coordinator_request import headers, path
from rtolap.wire.leader_finder import LeaderFinder
from rtolap.wire.watermark import MSGPACK, NAMELESS, Refusal, ReportAnswer, ReportBatch, UnitReport
from rtolap.wire.watermark_pending import Pending

log = logging.getLogger(__name__)

EVERY_S = 1.0
TIMEOUT_S = 10.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.1, 5.0
_ANSWER = msgspec.msgpack.Decoder(ReportAnswer)


class WatermarkClient:
    """Thread-safe. `urls`: base URLs of all coordinators. `problem` is what the last batch met; None if
    nothing."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        application: str,
        *,
        client_id: str | None = None,
        every_s: float = EVERY_S,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.client_id = client_id or uuid.uuid4().hex
        self.problem: str | None = None
        self.refused_entries = 0
        self.last_refused: tuple[Refusal, ...] = ()
        self._every_s = every_s
        self._leader = LeaderFinder(urls)
        self._path = path("applications", application, "reports")
        packed = {**headers(token), "Content-Type": MSGPACK}
        self._http = httpx.Client(headers=packed, timeout=timeout_s, transport=transport)
        self._pending = Pending()
        self._lock = threading.Lock()  # of what is pending: held for copies only
        self._answered = threading.Condition()
        self._answer: ReportAnswer | None = None
        self._unsent: ReportBatch | None = None
        self._sequence = self._last_answered = 0
        self._give_up_s = float("inf")
        self._begins = True
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"watermarks-{application}", daemon=True)
        self._thread.start()

    def __enter__(self) -> WatermarkClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- saying -----------------------------------------------------------------------------------------

    def report_progress(
        self,
        level: str,
        partition: int,
        generation: int,
        hosts: Sequence[str],
        latest_ms: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        partitions: int = 0,
    ) -> None:
        """The consumer of that generation has read each of these hosts so far; `counts` events since last
        time.

        `hosts` are names, a host may stand there more than once; empty for a source without a host list,
        whose `latest_ms` is one instant then. Raises DefinitionError where lengths differ.

        `partitions`: of the topic. Say it where a host may log to several: the watermark awaits them all.
        """
        latest = asarray(latest_ms, int64).reshape(-1)
        events = None if counts is None else asarray(counts, int64).reshape(-1)
        named = hosts if len(hosts) or not latest.size else [NAMELESS] * latest.size
        if len(named) != latest.size or (events is not None and events.size != latest.size):
            raise DefinitionError(
                "one instant per host is expected", found=f"{len(named)} hosts, {latest.size} instants"
            )
        with self._lock:
            self._pending.progress(level, partition, generation, named, latest, events, partitions)

    def set_oldest_work(
        self, level: str, processor: str, key_group: int = 0, oldest_work_ms: int | None = None
    ) -> None:
        """What the unit has taken in and not finished; None if there is none. Its lease is renewed from now
        on."""
        with self._lock:
            self._pending.work(UnitReport(level, processor, key_group, oldest_work_ms))

    def leave(self, level: str, processor: str, key_group: int = 0) -> None:
        """The unit ends; what it had not finished no longer counts."""
        with self._lock:
            self._pending.work(UnitReport(level, processor, key_group, left=True))

    # -- asking -----------------------------------------------------------------------------------------

    def watermark(self, level: str) -> int | None:
        """The level's output as the last answer said it: where its downstreams may go. Never smaller."""
        answer = self._answer
        return None if answer is None else answer.watermarks.get(level)

    def input_watermark(self, level: str) -> int | None:
        answer = self._answer
        return None if answer is None else answer.inputs.get(level)

    def global_watermark(self) -> int | None:
        answer = self._answer
        return None if answer is None else answer.global_ms

    def approved_until(self) -> int | None:
        """Windows that end at or below it have been let go by a person."""
        answer = self._answer
        return None if answer is None else answer.approved_until_ms

    def has_taken(self, level: str, partition: int, generation: int) -> bool:
        """Has the server taken what was first reported of the partition's consumer of that generation? It
        then counts on no earlier one, and `input_watermark` is of that moment or later."""
        with self._lock:
            said_in = self._pending.said_in(level, partition, generation)
        return said_in is not None and said_in <= self._last_answered

    def may_close(self, window_end_ms: int, timeout_s: float = 0.0) -> bool:
        """Is the global low watermark at the window's end, or has a person let it go? Waits so long for
        it."""
        deadline_s = time.monotonic() + timeout_s
        with self._answered:
            while not self._closable(window_end_ms):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or self._closing:
                    return False
                self._answered.wait(left_s)
        return True

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until what was reported before is with the leader. Raises Unavailable."""
        with self._answered:
            wanted = self._sequence + 2  # the batch after one that may be under way
        deadline_s = time.monotonic() + timeout_s
        while self._last_answered < wanted:
            self._wake.set()
            if time.monotonic() > deadline_s or not self._thread.is_alive():
                raise Unavailable("the watermark server has not taken the reports", found=self.problem)
            with self._answered:
                self._answered.wait(0.05)

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Says what is still to be said, at most for so long, and ends. What was not taken is logged."""
        with self._answered:
            self._closing = True
            self._answered.notify_all()
        self._give_up_s = time.monotonic() + timeout_s
        self._wake.set()
        self._thread.join(timeout_s + TIMEOUT_S)
        self._http.close()

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s, failed = self._every_s * random.uniform(0.1, 1.0), 0
        while True:
            self._wake.wait(pause_s)
            self._wake.clear()
            last = self._closing
            try:
                self._turn()
                failed, pause_s = 0, self._every_s
                if last:
                    return
            except (RtolapError, httpx.HTTPError) as error:
                if self.problem != str(error):
                    log.warning("reports wait, the newest are kept: %s", error)
                self.problem = str(error)
                failed += 1
                longest_s = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2 ** min(failed, 10))
                pause_s = longest_s * random.uniform(0.5, 1.0)
                if last and time.monotonic() + pause_s > self._give_up_s:
                    log.warning("closed before the last reports were taken: %s", error)
                    return
            except Exception as error:  # a bug here must not look like a quiet stream
                log.exception("the reports of %s failed", self.client_id)
                self.problem = f"{type(error).__name__}: {error}"
                if last:
                    return

    def _turn(self) -> None:
        """Send until nothing has to be said again."""
        while True:
            if self._unsent is None:
                self._sequence += 1
                self._unsent = self._next()
            try:
                answer = self._post(self._unsent)
            except (DefinitionError, Refused):  # as it is, it will not be taken: begin anew, a while later
                self._unsent, self._begins = None, True
                raise
            self._unsent, self.problem = None, None
            self._begins = answer.resend
            if answer.refused:
                self._log_refused(answer.refused)
            self._learn(answer)
            if not answer.resend and not self._pending.more:
                return

    def _next(self) -> ReportBatch:
        if self._answer is None:  # asks for the epoch; there is no use in more before it is known
            return ReportBatch(self.client_id, self._sequence, 0, True)
        with self._lock:
            if self._begins:
                self._pending.begin()
            return self._pending.take(self.client_id, self._sequence, self._answer.epoch, self._begins)

    def _learn(self, answer: ReportAnswer) -> None:
        with self._answered:
            if self._answer is None or answer.epoch >= self._answer.epoch:
                self._answer = answer
            if not answer.resend:
                self._last_answered = self._sequence
            self._answered.notify_all()

    def _log_refused(self, refused: tuple[Refusal, ...]) -> None:
        self.refused_entries += len(refused)
        if refused != self.last_refused:
            log.warning("refused: %s", "; ".join(f"{one.what}: {one.why}" for one in refused[:5]))
        self.last_refused = refused

    def _post(self, batch: ReportBatch) -> ReportAnswer:
        body = msgspec.msgpack.encode(batch)
        for url in self._leader.attempts():
            try:
                response = self._http.post(url + self._path, content=body)
            except httpx.TransportError as error:
                self._leader.failed(url, error)
                continue
            if self._leader.answered(url, response):
                return _ANSWER.decode(response.content)
        raise self._leader.nobody(f"POST {self._path}")

    def _closable(self, window_end_ms: int) -> bool:
        answer = self._answer
        if answer is None:
            return False
        known = [one for one in (answer.global_ms, answer.approved_until_ms) if one is not None]
        return max(known, default=-1) >= window_end_ms
