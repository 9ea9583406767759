"""The report role: a loader as a unit of a level of its application, which it holds behind what is readable.

It takes the unit over before anything is read and holds everything then, so the level stands where it is
until this process knows more. Its generation is the epoch of the job's lease: what a predecessor says that
was stopped and goes on is void. It never leaves: while no process runs, what is not loaded is not readable;
the unit's lease says for how long that counts.

The oldest work that it reports is a promise about what the table shows.

The application says that all events before an instant (its level's *input*) are in the topic. So:

    1. take the input
    2. look up where the topic ends, in every partition it has then
    3. once everything up to these ends can be read in the table, no event before that input is missing in it

This holds for events in any order and needs no times of records; it is as sure as the application's own rule.
An instant that was once promised stays true, whoever owns the job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rtolap.model.loader import LoaderApplication
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.watermark_client.client import WatermarkClient
from rtolap.watermark_client.session import WatermarkSession


class Readable(Protocol):
    """Shows how far the table can be read: `visible.Visible`, and that of several shares."""

    def poll(self) -> Offsets: ...


class Operator:
    """Watermark operator of one thread. Reporting waits for no coordinator: `client` sends the report when it
    can.
    """

    def __init__(
        self,
        client: WatermarkSession,
        application: LoaderApplication,
        job: str,
        generation: int,
        visible: Readable,
        log_ends: Callable[[], Offsets | None],
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        self._client = client
        self._application = application
        self._job = job
        self._generation = generation
        self._visible = visible
        self._log_ends = log_ends
        self._problem = problem
        self._oldest_work = OldestWorkTracker()
        self._say(self._oldest_work.oldest_ms)

    @property
    def problem(self) -> str:
        """Return why the coordinator does not take the reports; "" if it does."""
        return self._problem()

    def run_once(self) -> None:
        """Run once. Raises the ledger's errors and Unavailable; the unit holds meanwhile."""
        input_ms = self._client.input_watermark(self._application.level)
        self._oldest_work.observe(input_ms, self._log_ends())
        self._say(self._oldest_work.readable(self._visible.poll()))

    def _say(self, oldest_ms: int) -> None:
        application = self._application
        self._client.set_oldest_work(
            application.level, self._job, application.key, oldest_ms, generation=self._generation
        )


def operator_of(work: LoadJobRun, application: LoaderApplication, client: WatermarkClient) -> Operator:
    epoch = work.ownership.lease.epoch
    return Operator(
        client,
        application,
        work.loader.name,
        epoch,
        work.visible,
        work.log_ends,
        lambda: problem_of(client),
    )


def problem_of(client: WatermarkClient) -> str:
    """Return why the coordinator does not take the reports; "" if it does."""
    if client.problem:
        return f"watermarks: {client.problem}"
    return "; ".join(f"watermarks: {refusal.what}: {refusal.why}" for refusal in client.last_refused)


EVERYTHING_MS = 0  # no event is older: nothing is promised
LOOKS_MAX = 64  # while a backlog is loaded; beyond it every second one is dropped, which only costs time


class OldestWorkTracker:
    """Tracks the time of the oldest work. Not thread-safe."""

    def __init__(self) -> None:
        self.oldest_ms = EVERYTHING_MS
        self._looks: list[tuple[int, Offsets]] = []

    def observe(self, input_ms: int | None, ends: Offsets | None) -> None:
        """Observe the ends of the log, which were requested after `input_ms` was known. Where either is
        unknown, nothing follows."""
        newest_ms = self._looks[-1][0] if self._looks else self.oldest_ms
        if input_ms is None or ends is None or input_ms <= newest_ms:
            return  # of equal inputs the first has the smaller ends
        self._looks.append((input_ms, ends))
        if len(self._looks) > LOOKS_MAX:
            del self._looks[1::2]

    def readable(self, visible: Offsets) -> int:
        """Return the oldest work, now that the table shows everything before `visible`."""
        while self._looks:
            input_ms, ends = self._looks[0]
            if any(visible.get(partition, 0) < end for partition, end in ends.items()):
                break
            self.oldest_ms = input_ms
            del self._looks[0]
        return self.oldest_ms
