"""The agent's Prometheus metrics, which count its processes by kind and outcome.

The kind of a process is its key up to the first full stop: `receiver` of `receiver.r0`. Beyond `KINDS_MAX` of
them, which only a caller that makes keys up can reach, all others are counted as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from rtolap.agent.records import ProcessRecord
from rtolap.agent.states import ProcessEvent
from rtolap.base.metrics import Family, Metrics

KINDS_MAX = 32
_OTHER = "other"


class AgentMetrics:
    def __init__(self) -> None:
        self.registry = Metrics("agent")
        self._events = self.registry.counter("process_events")
        self._kinds: set[str] = set()

    def follow(self, processes: Callable[[], Iterable[ProcessRecord]]) -> None:
        """Read `processes` at each scrape, from any thread. It answers from memory."""

        def sample() -> Iterator[Family]:
            states: Counter[tuple[str, str]] = Counter()
            restarts: Counter[tuple[str]] = Counter()
            for record in processes():
                kind = self._kind(record.key)
                states[kind, record.state.value] += 1
                restarts[(kind,)] += record.restarts
            yield self.registry.family("processes", sorted(states.items()))
            yield self.registry.family("restarts", sorted(restarts.items()))

        self.registry.sampled(sample)

    def stepped(self, key: str, event: ProcessEvent) -> None:
        self._events.labels(self._kind(key), event.value).inc()

    def _kind(self, key: str) -> str:
        kind = key.partition(".")[0]
        if kind not in self._kinds and len(self._kinds) < KINDS_MAX:
            self._kinds.add(kind)
        return kind if kind in self._kinds else _OTHER
