"""The report role: a loader as a unit of a level of its application, which it holds behind what is readable.

It takes the unit over before anything is read and holds everything then, so the level stands where it is
until this process knows more. Its generation is the epoch of the job's lease: what a predecessor says that
was stopped and goes on is void. It never leaves: while no process runs, what is not loaded is not readable;
the unit's lease says for how long that counts.
"""

from __future__ import annotations

from collections.abc import Callable

from rtolap.model.loader import LoaderApplication
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.oldest_work import OldestWorkTracker
from rtolap.stored.loader.visible import Visible
from rtolap.watermark_client.client import WatermarkClient
from rtolap.watermark_client.session import WatermarkSession


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
        visible: Visible,
        log_ends: Callable[[], Offsets | None],
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self._client = client
        self._application = application
        self._job = job
        self._generation = generation
        self._visible = visible
        self._log_ends = log_ends
        self._trouble = trouble
        self._held = OldestWorkTracker()
        self._say(self._held.oldest_ms)

    @property
    def trouble(self) -> str:
        """Return why the coordinator does not take the reports; "" if it does."""
        return self._trouble()

    def run_once(self) -> None:
        """Raises the ledger's errors and Unavailable; the unit holds meanwhile."""
        input_ms = self._client.input_watermark(self._application.level)
        self._held.look(input_ms, self._log_ends())
        self._say(self._held.readable(self._visible.look()))

    def _say(self, oldest_ms: int) -> None:
        one = self._application
        self._client.set_oldest_work(one.level, self._job, one.key, oldest_ms, generation=self._generation)


def operator_of(work: LoadJobRun, application: LoaderApplication, client: WatermarkClient) -> Operator:

    def trouble() -> str:
        if client.problem:
            return f"watermarks: {client.problem}"
        return "; ".join(f"watermarks: {one.what}: {one.why}" for one in client.last_refused)

    epoch = work.ownership.lease.epoch
    return Operator(client, application, work.loader.name, epoch, work.visible, work.log_ends, trouble)
