"""Tests of how far hosts have been read, whatever order reports come in; held against an obvious slow
model."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rtolap.watermark.progress import SourceProgress
from rtolap.watermark.snapshot import NEVER

NOW_MS = 1_700_000_000_000


def apply(progress: SourceProgress, partition: int, generation: int, told: dict[int, int]) -> list[bool]:
    hosts = np.array(list(told), np.int64)
    latest = np.array(list(told.values()), np.int64)
    return progress.apply(partition, generation, hosts, latest, NOW_MS).accepted.tolist()


def test_a_host_counts_with_its_smallest_partition() -> None:
    progress = SourceProgress(2)
    apply(progress, 0, 1, {0: 100, 1: 100})
    apply(progress, 1, 1, {0: 50})
    assert progress.latest_ms().tolist() == [50, 100]
    apply(progress, 1, 1, {0: 170})
    assert progress.latest_ms().tolist() == [100, 100]


def test_regressions_are_counted_and_change_nothing() -> None:
    progress = SourceProgress(1)
    apply(progress, 0, 1, {0: 100})
    apply(progress, 0, 1, {0: 90})
    apply(progress, 0, 1, {0: 100})
    assert progress.latest_ms().tolist() == [100]
    assert progress.counters.regressions == 1


def test_an_earlier_generation_is_refused_and_a_later_one_replaces() -> None:
    progress = SourceProgress(2)
    apply(progress, 0, 5, {0: 100, 1: 100})
    hosts, latest = np.array([0]), np.array([200])
    assert progress.apply(0, 4, hosts, latest, NOW_MS).stale
    assert progress.latest_ms().tolist() == [100, 100]
    apply(progress, 0, 6, {0: 40})
    assert progress.latest_ms().tolist() == [40, NEVER]  # host 1 is awaited
    assert (progress.counters.stale_reports, progress.counters.replaced_generations) == (1, 1)


def test_a_replaced_partition_does_not_make_its_hosts_early() -> None:
    """A host on two partitions whose slower one changes hands is not taken for the faster one."""
    progress = SourceProgress(1)
    apply(progress, 0, 1, {0: 500})
    apply(progress, 1, 1, {0: 100})
    apply(progress, 1, 2, {})
    assert progress.latest_ms().tolist() == [NEVER]
    apply(progress, 1, 2, {0: 90})
    assert progress.latest_ms().tolist() == [90]


def test_impossible_progress_is_refused_entry_by_entry() -> None:
    progress = SourceProgress(4, future_max_ms=1_000)
    told = {0: -1, 1: NOW_MS + 1_001, 2: NOW_MS + 1_000, 9: 5, -3: 5}
    assert apply(progress, 0, 1, told) == [False, False, True, False, False]
    assert progress.latest_ms().tolist() == [NEVER, NEVER, NOW_MS + 1_000, NEVER]
    counters = progress.counters
    assert (counters.negative, counters.in_future, counters.unknown_hosts) == (1, 1, 2)
    with pytest.raises(ValueError, match="one instant per host"):
        progress.apply(0, 1, np.array([1, 2]), np.array([1]), NOW_MS)


def test_a_host_named_twice_in_one_report_counts_with_the_larger_value() -> None:
    progress = SourceProgress(1)
    progress.apply(0, 1, np.array([0, 0]), np.array([200, 100]), NOW_MS)
    assert progress.latest_ms().tolist() == [200]
    apply(progress, 1, 1, {0: 300})
    assert progress.latest_ms().tolist() == [200]


def test_a_host_that_moved_to_another_partition_is_released_by_event_time() -> None:
    progress = SourceProgress(3)
    apply(progress, 0, 1, {0: 1_000, 1: 1_000, 2: 1_000})
    apply(progress, 1, 1, {0: 99_000})
    assert progress.release_abandoned(60_000) == 0  # partition 0 stands still: that is no sign of leaving
    apply(progress, 0, 1, {1: 99_000})
    assert progress.release_abandoned(60_000) == 1
    assert progress.latest_ms().tolist() == [99_000, 99_000, 1_000]  # host 2 stands still everywhere


def handed_over() -> SourceProgress:
    """Hosts 0 and 1 on partition 0, hosts 0 and 2 on partition 1. Partition 0 has just changed hands, and
    host 0 has gone on elsewhere."""
    progress = SourceProgress(3)
    apply(progress, 0, 1, {0: 1_000_000, 1: 1_000_000})
    apply(progress, 1, 1, {0: 1_000_000, 2: 1_000_000})
    apply(progress, 0, 2, {1: 999_500})
    apply(progress, 1, 1, {0: 1_100_000, 2: 1_100_000})
    return progress


def test_an_awaited_host_is_not_released_because_the_new_reader_has_named_another() -> None:
    progress = handed_over()
    assert progress.release_abandoned(60_000) == 0
    apply(progress, 0, 2, {1: 1_060_000})
    assert progress.release_abandoned(60_000) == 0, "others are further by a lease, not by more"
    assert progress.latest_ms().tolist() == [NEVER, 1_060_000, 1_100_000]
    apply(progress, 0, 2, {0: 1_000_001})
    assert progress.latest_ms()[0] == 1_000_001


def test_an_awaited_host_is_released_once_others_are_beyond_the_former_reader_by_more_than_a_lease() -> None:
    progress = handed_over()
    apply(progress, 0, 2, {1: 1_060_001})
    assert progress.release_abandoned(60_000) == 1
    assert progress.latest_ms().tolist() == [1_100_000, 1_060_001, 1_100_000]


def test_a_host_that_is_read_again_is_not_released_before_the_former_reader_is_reached() -> None:
    """It was silent for longer than a lease, and then went on: the former reader has seen that."""
    progress = handed_over()
    apply(progress, 0, 2, {0: 900_000})
    assert progress.release_abandoned(60_000) == 0
    assert progress.latest_ms()[0] == 900_000


def test_an_awaited_host_is_held_to_the_furthest_of_several_former_readers() -> None:
    progress = handed_over()
    apply(progress, 0, 3, {1: 900_000})
    apply(progress, 0, 4, {1: 1_060_000})
    assert progress.release_abandoned(60_000) == 0
    progress.grow(4)
    progress.keep(np.array([3, 0, 1]))
    assert progress.release_abandoned(60_000) == 0, "also with new indices"
    apply(progress, 0, 4, {2: 1_060_001})
    assert progress.release_abandoned(60_000) == 1


def test_indices_are_kept_or_rebuilt() -> None:
    progress = SourceProgress(2)
    apply(progress, 0, 1, {0: 10, 1: 20})
    progress.grow(4)
    apply(progress, 0, 1, {3: 30})
    assert progress.latest_ms().tolist() == [10, 20, NEVER, 30]
    progress.keep(np.array([3, 1]))
    assert progress.latest_ms().tolist() == [30, 20]
    progress.forget(np.array([0]))
    assert progress.latest_ms().tolist() == [NEVER, 20]
    assert progress.partition_latest_ms() == {0: 20}


class SlowProgress:
    """Dictionaries and loops; what the table has to equal."""

    def __init__(self) -> None:
        self.generations: dict[int, int] = {}
        self.told: dict[tuple[int, int], int] = {}
        self.regressions = self.stale = 0

    def apply(self, partition: int, generation: int, told: dict[int, int]) -> None:
        current = self.generations.get(partition, generation)
        if generation < current:
            self.stale += 1
            return
        if generation > current:
            for at in self.told:
                if at[0] == partition:
                    self.told[at] = NEVER
        self.generations[partition] = generation
        for host, latest in told.items():
            before = self.told.get((partition, host), NEVER)
            self.regressions += latest < before
            self.told[partition, host] = max(before, latest)

    def latest(self, host: int) -> int:
        return min((latest for (_, one), latest in self.told.items() if one == host), default=NEVER)


@pytest.mark.parametrize("seed", range(4))
def test_any_story_of_reports_equals_a_slow_model(seed: int) -> None:
    """600 stories a seed: duplicated, reordered and repeated reports, old and new generations, hosts that
    join."""
    rng = random.Random(seed)
    for _ in range(600):
        hosts = rng.randint(1, 5)
        progress, slow = SourceProgress(hosts), SlowProgress()
        sent: list[tuple[int, int, dict[int, int]]] = []
        for _ in range(rng.randint(1, 20)):
            if rng.random() < 0.05:
                hosts += 1
                progress.grow(hosts)
            if sent and rng.random() < 0.3:
                report = rng.choice(sent)
            else:
                named = rng.sample(range(hosts), rng.randint(0, hosts))
                told = {host: rng.randint(0, 50) for host in named}
                report = (rng.randint(0, 2), rng.randint(0, 3), told)
                sent.append(report)
            apply(progress, *report)
            slow.apply(*report)
            assert progress.latest_ms().tolist() == [slow.latest(host) for host in range(hosts)]
        assert progress.counters.regressions == slow.regressions
        assert progress.counters.stale_reports == slow.stale


def test_the_order_of_the_reports_of_a_generation_makes_no_difference() -> None:
    rng = random.Random(9)
    for _ in range(200):
        reports = [
            (p, 1, {h: rng.randint(0, 50) for h in rng.sample(range(4), 2)}) for p in (0, 1, 2, 0, 1, 2)
        ]
        results = []
        for _ in range(2):
            rng.shuffle(reports)
            progress = SourceProgress(4)
            for report in reports + rng.sample(reports, 3):
                apply(progress, *report)
            results.append(progress.latest_ms().tolist())
        assert results[0] == results[1]
