"""Reports progress and oldest work to the coordinator, and knows the watermarks: for sources, operators and
sinks.

    client = WatermarkClient(urls, token, "access_logs")
    client.report_progress("web_servers", partition, generation, hosts, latest_ms)   # returns at once
    client.set_oldest_work("sessions", "worker-3", key_group, oldest_ms)
    if client.may_close(window_end_ms, timeout_s=60): ...

Reporting merges into what is still to be sent and never waits for the network: one thread sends a batch
about each second. While no owner answers, the newest state per key is kept, which is bounded by hosts and
partitions, not by time. A batch is repeated unchanged until it is answered; a new owner is sent everything
again.

Order matters to be exact: say the oldest work of an event before the progress that lies beyond it. Both may
stand in one batch.

Batch jobs, loaders and Spark drivers hold the watermark by work until it is done:

    with unfinished(client, "enrich", "nightly", oldest_work_ms=oldest_ms, generation=started_ms):
        frame.write.parquet(...)

Whoever drives the work says it; those that do parts of it, as Spark's executors, need no client.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import msgspec

from rtolap.base.clock import Clock
from rtolap.base.closeable import Closeable
from rtolap.base.errors import DefinitionError, Impostor, Refused, RtolapError, Unavailable
from rtolap.protocols.rest.clients import service_client
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.protocols.rest.proven import ProvenAuth
from rtolap.protocols.rest.request import headers, path
from rtolap.protocols.watermark.messages import MSGPACK, Refusal, ReportAnswer, ReportBatch
from rtolap.watermark_client.session import WatermarkSession

log = logging.getLogger(__name__)

EVERY_S = 1.0
TIMEOUT_S = 10.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.1, 5.0
_ANSWER = msgspec.msgpack.Decoder(ReportAnswer)


class WatermarkClient(WatermarkSession, Closeable):
    """A client of watermarks. It is thread-safe. `urls` are the base URLs of all coordinators. `problem` is
    the error of the last batch; None if it had none. `learnt` says that the URLs were read in ZooKeeper,
    so that the token is proven and not sent."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        application: str,
        *,
        learnt: bool = False,
        client_id: str | None = None,
        every_s: float = EVERY_S,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(client_id or uuid.uuid4().hex, clock)
        self.problem: str | None = None
        self.refused_entries = 0
        self.last_refused: tuple[Refusal, ...] = ()
        self._every_s = every_s
        self._leader = LeaderFinder(urls)
        self._path = path("applications", application, "reports")
        self._http = service_client(
            headers={"Content-Type": MSGPACK, **({} if learnt else headers(token))},
            auth=ProvenAuth(token) if learnt else None,
            timeout=timeout_s,
            transport=transport,
        )
        self._give_up_s = float("inf")
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"watermarks-{application}", daemon=True)
        self._thread.start()

    # -- waiting -----------------------------------------------------------------------------------------

    def may_close(self, window_end_ms: int, timeout_s: float = 0.0) -> bool:
        """Return True if the global low watermark is at the window's end, or a person approved it. It waits
        for that as long as given."""
        deadline_s = time.monotonic() + timeout_s
        with self._answered:
            while not self._closable(window_end_ms):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or self._closing:
                    return False
                self._answered.wait(left_s)
        return True

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until what was reported before is with the owner, which may have refused some of it: see
        `last_refused`, `unit_refused`. Raises Unavailable."""
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
        """Send the pending reports within this time, and end. Reports that were not taken are logged."""
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
        """Send until nothing has to be sent again."""
        more = True
        while more:
            try:
                answer = self._post(self.batch())
            except (DefinitionError, Refused):  # as it is, it will not be taken: begin again, a while later
                self.given_up()
                raise
            if not self._pending.withheld:
                self.problem = None
            if answer.refused:
                self._log_refused(answer.refused)
            more = self.answered(answer)

    def _log_refused(self, refused: tuple[Refusal, ...]) -> None:
        self.refused_entries += len(refused)
        if refused != self.last_refused:
            log.warning("refused: %s", "; ".join(f"{refusal.what}: {refusal.why}" for refusal in refused[:5]))
        self.last_refused = refused

    def _post(self, batch: ReportBatch) -> ReportAnswer:
        body = msgspec.msgpack.encode(batch)
        for url in self._leader.attempts():
            try:
                response = self._http.post(url + self._path, content=body)
            except (httpx.TransportError, Impostor) as error:
                self._leader.failed(url, error)
                continue
            if self._leader.answered(url, response):
                return _ANSWER.decode(response.content)
        raise self._leader.nobody(f"POST {self._path}")

    def _closable(self, window_end_ms: int) -> bool:
        answer = self._answer
        if answer is None:
            return False
        known = [mark_ms for mark_ms in (answer.global_ms, answer.approved_until_ms) if mark_ms is not None]
        return max(known, default=-1) >= window_end_ms


@contextmanager
def unfinished(
    client: WatermarkClient,
    level: str,
    processor: str,
    key_group: int = 0,
    *,
    oldest_work_ms: int,
    generation: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[None]:
    """Run the body once the server holds the level's output at the oldest event that is worked on.

    The caller that hands the events over keeps them until then. Afterwards the unit has nothing to do and
    stays; call `client.leave` when no more is to come. If the body fails the work counts as unfinished:
    another try says it again, else the unit's lease ends it with the client. Raises Unavailable when the
    server does not take it within `timeout_s`, Refused when it refuses it; then nothing was done.
    """
    client.set_oldest_work(level, processor, key_group, oldest_work_ms, generation=generation)
    client.flush(timeout_s)
    refusal = client.unit_refused(level, processor, key_group)
    if refusal is not None:
        raise Refused(
            "the watermark server does not hold the work",
            expected="that it takes its oldest event",
            found=f"{refusal.what}: {refusal.why}",
        )
    yield
    client.set_oldest_work(level, processor, key_group, None, generation=generation)
