"""The downstream end: what producers state in the records of a topic becomes the progress of a source.

The source's hosts are the producers; its rule is `host_precise` with 0 ppm, which is the chain's rule: of a
producer in a partition the largest, together the smallest.

    reader = WatermarkReader(client, "results", leases=leases)
    reader.assign({0: generation, 1: generation}, partitions_total=8)
    batch = consumer.poll(...)               # of a consumer opened with_statements
    ...                                      # take in its records, say the oldest work
    reader.took(batch_statements(batch).statements)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rtolap.watermark.chain import Chain
from rtolap.watermark.records.columns import UNKNOWN_MS, Statements
from rtolap.watermark.reports import ProgressReports

BEFORE_EVERYTHING_MS = 0  # event times before 1970 are refused


class Presence(Protocol):
    """The receiver of reports on which producers are there: `leases.ProducerLeases`."""

    def heard(self, producers: Iterable[str]) -> None: ...

    def ended(self, producers: Mapping[str, int | None]) -> None: ...


class WatermarkReader:
    """The reader of the watermarks in some partitions of a topic, for the consuming thread. It never blocks.

    A known producer without a statement in a partition in which others have one is reported there as before
    everything. A partition without statements is not reported at all, and is awaited by name.

    Args:
        producers: names of the producers that are known beforehand.
    """

    def __init__(
        self,
        reports: ProgressReports,
        level: str,
        *,
        producers: Iterable[str] = (),
        leases: Presence | None = None,
    ) -> None:
        self.unreadable = 0
        self._reports = reports
        self._level = level
        self._leases = leases
        self._partitions_total = 0
        self._generations: dict[int, int] = {}
        self._spoken: set[int] = set()
        self._chain = Chain((), producers)

    def assign(self, generations: Mapping[int, int], partitions_total: int) -> None:
        """Read these partitions from now on, each as a generation of its consumers. All of the topic's
        `partitions_total` are awaited. Nothing is known of a partition that is new, or new in its
        generation, until its next control record."""
        remaining = {
            partition
            for partition, generation in generations.items()
            if self._generations.get(partition) == generation
        }
        self._chain.assign(remaining)
        self._chain.assign(generations)
        self._spoken &= remaining
        self._generations = dict(generations)
        self._partitions_total = partitions_total

    def took(self, statements: Statements) -> None:
        """Call when the batch's records are in the state, and their oldest work has been reported."""
        self.unreadable += statements.unreadable
        before = frozenset(self._chain.producers)
        hosts: dict[int, set[str]] = {}
        ended: set[str] = set()
        rows = zip(
            statements.producers,
            statements.partitions.tolist(),
            statements.watermarks_ms.tolist(),
            statements.generations.tolist(),
            statements.ended.tolist(),
            strict=True,
        )
        for producer, partition, watermark_ms, generation, end in rows:
            if partition not in self._generations:
                continue  # given away meanwhile
            stated_ms = None if watermark_ms == UNKNOWN_MS else watermark_ms
            self._chain.observe(producer, partition, stated_ms, generation, ended=end)
            hosts.setdefault(partition, set()).add(producer)
            ended |= {producer} if end else set()
        joined = frozenset(self._chain.producers) - before
        for partition in self._spoken | hosts.keys():
            silent = joined if partition in self._spoken else before | joined
            self._report(partition, sorted(hosts.get(partition, set()) | silent))
        self._spoken |= hosts.keys()
        if self._leases is not None:
            self._leases.heard(set().union(*hosts.values()) - ended)
            self._leases.ended({name: end for name, end in self._chain.ended().items() if name in ended})

    def waits_for(self) -> Mapping[str, tuple[int, ...]]:
        """Return the partitions that this consumer reads and in which a producer has stated nothing yet, by
        producer."""
        return self._chain.missing_statements()

    def _report(self, partition: int, producers: Sequence[str]) -> None:
        if not producers:
            return
        statements = [self._chain.statement_of(producer, partition) for producer in producers]
        known = [UNKNOWN_MS if statement is None else statement.watermark_ms for statement in statements]
        self._reports.report_progress(
            self._level,
            partition,
            self._generations[partition],
            producers,
            [max(watermark_ms, BEFORE_EVERYTHING_MS) for watermark_ms in known],
            partitions=self._partitions_total,
        )
