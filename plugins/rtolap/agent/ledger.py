"""The agent's records in memory and on disk: every change is on disk when the call returns."""

from __future__ import annotations

import logging

from rtolap.agent.metrics import AgentMetrics
from rtolap.agent.processes import Processes
from rtolap.agent.records import FORGOTTEN_MAX, AgentState, ProcessRecord, StateFile
from rtolap.agent.states import FINAL, ProcessEvent
from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound, Refused

log = logging.getLogger(__name__)

FINISHED_MAX = 1000  # ended processes that nobody acknowledged; the oldest are forgotten beyond it


class ProcessLedger:
    """Records of processes. `metrics` counts each step of a life once it is on disk."""

    def __init__(self, file: StateFile, processes: Processes, clock: Clock, metrics: AgentMetrics) -> None:
        self._file = file
        self._metrics = metrics
        self._processes = processes
        self._clock = clock
        state = file.load()
        self._records: dict[str, ProcessRecord] = {record.key: record for record in state.processes}
        self._forgotten: dict[str, int] = dict(state.forgotten)
        self._labels: dict[str, dict[str, str]] = dict(state.labels)
        metrics.follow(lambda: tuple(self._records.values()))

    def all(self) -> tuple[ProcessRecord, ...]:
        return tuple(self._records[key] for key in sorted(self._records))

    def find(self, key: str) -> ProcessRecord | None:
        return self._records.get(key)

    def get(self, key: str) -> ProcessRecord:
        record = self._records.get(key)
        if record is None:
            raise NotFound(f"no process {key} on this host")
        return record

    def owned(self, key: str, generation: int, what: str) -> ProcessRecord:
        """Return the record, if that generation is the present one; Refused otherwise."""
        record = self.get(key)
        if record.generation != generation:
            raise Refused(
                f"cannot {what} {key} generation {generation}", expected=f"generation {record.generation}"
            )
        return record

    def generation(self, key: str) -> int:
        """Return the highest generation ever seen, 0 for none; those of acknowledged processes count too."""
        record = self._records.get(key)
        return record.generation if record else self._forgotten.get(key, 0)

    def labels(self, key: str) -> dict[str, str]:
        """Return the labels of that generation; empty where the key was never seen."""
        record = self._records.get(key)
        return dict(record.spec.labels) if record else self._labels.get(key, {})

    def step(self, record: ProcessRecord, event: ProcessEvent, reason: str) -> ProcessRecord:
        changed = record.after(event, reason=reason, now_ms=self._clock.now_ms())
        if changed.state is not record.state:
            log.info("%s generation %d: %s (%s)", record.key, record.generation, changed.state, reason)
        self.put(changed)
        self._metrics.stepped(record.key, event)
        return changed

    def put(self, record: ProcessRecord) -> None:
        self._records[record.key] = record
        self._forgotten.pop(record.key, None)
        self._labels.pop(record.key, None)
        finished = sorted(
            (other for other in self._records.values() if other.state in FINAL),
            key=lambda other: other.changed_ms,
        )
        for old in finished[: max(0, len(finished) - FINISHED_MAX)]:
            self._drop(old)
        self._save()

    def forget(self, record: ProcessRecord) -> None:
        """Keep the generation and the labels only (and the log, for people)."""
        self._drop(record)
        self._save()

    def _drop(self, record: ProcessRecord) -> None:
        del self._records[record.key]
        self._processes.exit_path(record.key, record.generation).unlink(missing_ok=True)
        self._processes.remove_caller_files(record.key, record.generation)
        self._forgotten[record.key] = record.generation
        self._labels[record.key] = dict(record.spec.labels)
        while len(self._forgotten) > FORGOTTEN_MAX:
            oldest = next(iter(self._forgotten))
            self._labels.pop(oldest, None)
            self._processes.remove_files(oldest, self._forgotten.pop(oldest))

    def _save(self) -> None:
        self._file.save(AgentState(tuple(self._records.values()), self._forgotten, self._labels))
