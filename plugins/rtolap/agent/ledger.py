"""The agent's records in memory and on disk: every change is on disk when the call returns, or has not
happened."""

from __future__ import annotations

import logging
from collections.abc import Sequence

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
        self.put(changed)
        if changed.state is not record.state:
            log.info("%s generation %d: %s (%s)", record.key, record.generation, changed.state, reason)
        self._metrics.stepped(record.key, event)
        return changed

    def put(self, record: ProcessRecord) -> None:
        """Put the record in the place of the key's last one. Raises Unavailable."""
        records = {**self._records, record.key: record}
        finished = sorted(
            (other for other in records.values() if other.state in FINAL), key=lambda other: other.changed_ms
        )
        self._replace(records, finished[: max(0, len(finished) - FINISHED_MAX)])

    def forget(self, record: ProcessRecord) -> None:
        """Keep the generation and the labels only (and the log, for people). Raises Unavailable."""
        self._replace(dict(self._records), [record])

    def _replace(self, records: dict[str, ProcessRecord], dropped: Sequence[ProcessRecord]) -> None:
        """Put the records, less those that are dropped, on the disk, and then in memory.

        In the other order a process would be started of which an agent that comes after knows nothing.
        """
        forgotten = {key: known for key, known in self._forgotten.items() if key not in records}
        labels = {key: known for key, known in self._labels.items() if key not in records}
        for record in dropped:
            del records[record.key]
            forgotten[record.key] = record.generation
            labels[record.key] = dict(record.spec.labels)
        erased = list(forgotten.items())[: max(0, len(forgotten) - FORGOTTEN_MAX)]
        for key, _ in erased:
            del forgotten[key]
            labels.pop(key, None)
        self._file.save(AgentState(tuple(records.values()), forgotten, labels))
        self._records, self._forgotten, self._labels = records, forgotten, labels
        for record in dropped:
            self._processes.exit_path(record.key, record.generation).unlink(missing_ok=True)
            self._processes.remove_caller_files(record.key, record.generation)
        for key, generation in erased:
            self._processes.remove_files(key, generation)
