"""Another consumer of a partition reads again what was counted: rates are what they were."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.watermark.progress import SourceProgress
from rtolap.watermark.weights import HostRates

START_MS = 1_700_000_000_000
HOSTS, PARTITIONS = 400, 4
REPORT_MS, EVENTS = 5_000, 10


class Readers:
    """Each host logs ten events in five seconds to one partition; a report states where its reader is."""

    def __init__(self) -> None:
        self.progress, self.rates = SourceProgress(HOSTS), HostRates(HOSTS)
        self.at = [0] * PARTITIONS
        self.generation = [0] * PARTITIONS

    def read(self, partition: int, until: int, now_ms: int) -> None:
        """One report of everything up to the `until`-th five seconds."""
        hosts = np.arange(partition, HOSTS, PARTITIONS)
        events = np.full(hosts.size, (until - self.at[partition]) * EVENTS)
        latest_ms = np.full(hosts.size, START_MS + until * REPORT_MS)
        generation = self.generation[partition]
        applied = self.progress.apply(partition, generation, hosts, latest_ms, now_ms)
        self.rates.observe(hosts, events, latest_ms, applied.goes_on)
        self.at[partition] = until

    def run(self, steps: range) -> None:
        for step in steps:
            now_ms = START_MS + step * REPORT_MS
            for partition in range(PARTITIONS):
                self.read(partition, step, now_ms)
            self.rates.estimate(now_ms)


@pytest.mark.parametrize("back", [0, 1, 60, 700])
def test_a_consumer_that_reads_again_changes_no_rates(back: int) -> None:
    readers = Readers()
    readers.run(range(1, 720))
    readers.generation[0] += 1
    readers.at[0] -= back
    for until in np.linspace(readers.at[0] + 1, 720, 4).astype(int).tolist():
        readers.read(0, until, START_MS + 720 * REPORT_MS)
    readers.run(range(721, 780))
    one = readers.rates.estimate(START_MS + 780 * REPORT_MS)
    assert one.events_per_ms == pytest.approx(np.full(HOSTS, EVENTS / REPORT_MS), rel=0.01)


def test_counts_are_new_again_once_the_consumer_is_where_the_former_one_was() -> None:
    progress, host = SourceProgress(2), np.array([0])

    def goes_on(generation: int, at_ms: int) -> bool:
        return bool(progress.apply(0, generation, host, np.array([at_ms]), START_MS).goes_on[0])

    assert [goes_on(1, 100), goes_on(1, 200)] == [False, True]
    assert [goes_on(2, 50), goes_on(2, 150), goes_on(2, 250), goes_on(2, 260)] == [False, False, False, True]
    assert [goes_on(3, 10), goes_on(4, 20), goes_on(4, 270), goes_on(4, 280)] == [False, False, False, True]
    before = progress.nbytes
    progress.apply(0, 5, host, np.array([280]), START_MS)
    assert progress.nbytes > before
    progress.apply(0, 5, host, np.array([281]), START_MS)
    assert progress.nbytes == before, "what was caught up with is forgotten"


def test_a_host_that_stands_twice_in_a_report_counts_with_all_its_events() -> None:
    twice, once = HostRates(2), HostRates(2)
    for step in range(1, 40):
        at_ms = START_MS + step * REPORT_MS
        twice.observe(np.array([0, 1, 0]), np.array([4, 5, 6]), np.array([at_ms - 9, at_ms, at_ms]))
        once.observe(np.array([0, 1]), np.array([10, 5]), np.array([at_ms, at_ms]))
        assert (twice.estimate(at_ms).events_per_ms == once.estimate(at_ms).events_per_ms).all()
