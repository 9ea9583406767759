"""Statistics of loads: the rows and times that each answers with, and the metrics of all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import UNSET, UnsetType

from rtolap.base.errors import RtolapError
from rtolap.base.metrics import Metrics
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadStatus
from rtolap.stored.bodies.batches import RowCounts


class Phase(StrEnum):
    BEGIN = "begin"
    PUT = "put"
    READ = "read"
    WRITE = "write"
    COMMIT = "commit"


@dataclass
class LoadProgress:
    """Progress of one load, filled in while it runs; its thread's own. `spent_s`: phase -> seconds."""

    label: str
    comment: str = ""
    two_phase: bool = False
    txn_id: int = -1
    counts: RowCounts = field(default_factory=RowCounts)
    load_bytes: int = 0
    error_url: str | None = None
    first_error: str = ""
    spent_s: dict[Phase, float] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)

    @contextmanager
    def measured(self, phase: Phase) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.spent_s[phase] = self.spent_s.get(phase, 0.0) + time.monotonic() - began_s

    def failed(self, error: RtolapError, message: str | None = None) -> LoadAnswer:
        return self.answer("Fail", message or str(error), code=error.code)

    def answer(
        self,
        status: LoadStatus,
        message: str = "OK",
        existing_job_status: str | None = None,
        *,
        code: str | UnsetType = UNSET,
    ) -> LoadAnswer:
        stands = status in ("Success", "Publish Timeout")
        return LoadAnswer(
            txn_id=self.txn_id,
            label=self.label,
            comment=self.comment,
            two_phase_commit="true" if self.two_phase else "false",
            status=status,
            existing_job_status=existing_job_status or UNSET,
            message=message,
            number_total_rows=self.counts.total,
            number_loaded_rows=self.counts.loaded if stands else 0,
            number_filtered_rows=self.counts.filtered,
            number_unselected_rows=self.counts.unselected,
            load_bytes=self.load_bytes,
            load_time_ms=round((time.monotonic() - self.began_s) * 1000),
            begin_txn_time_ms=self._ms(Phase.BEGIN),
            stream_load_put_time_ms=self._ms(Phase.PUT),
            read_data_time_ms=self._ms(Phase.READ),
            write_data_time_ms=self._ms(Phase.WRITE),
            commit_and_publish_time_ms=self._ms(Phase.COMMIT),
            error_url=self.error_url or UNSET,
            first_error_msg=self.first_error or UNSET,
            code=code,
        )

    def _ms(self, phase: Phase) -> int:
        return round(self.spent_s.get(phase, 0.0) * 1000)


class LoadMetrics:
    """Prometheus metrics of the loads of a front end."""

    def __init__(self, metrics: Metrics) -> None:
        self.running = metrics.gauge("loads_running")
        self.refused = metrics.counter("loads_refused")
        self._loads = metrics.counter("loads")
        self._rows = metrics.counter("rows")
        self._bytes = metrics.counter("load_bytes")
        self._seconds = metrics.histogram("load_seconds")

    def note(self, answer: LoadAnswer) -> None:
        self._loads.labels(answer.status).inc()
        self._rows.labels("loaded").inc(answer.number_loaded_rows)
        self._rows.labels("filtered").inc(answer.number_filtered_rows)
        self._rows.labels("unselected").inc(answer.number_unselected_rows)
        self._bytes.inc(answer.load_bytes)
        self._seconds.observe(answer.load_time_ms / 1000)
