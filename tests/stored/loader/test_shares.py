"""The pure rules of shares: which process has which, how many there are, and what a process does."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.model.loader import LoaderProcesses, share_of_partition
from rtolap.stored.loader.job import Portion, label_of
from rtolap.stored.loader.shares.assignment import assign, staying
from rtolap.stored.loader.shares.portion import shares_of
from rtolap.stored.loader.shares.process_count import CountState, first_count, next_count
from rtolap.stored.loader.shares.states import (
    TRANSITIONS,
    ShareAction,
    ShareEvent,
    ShareState,
    transition,
)

from tests.support.seeds import so_many

POLICY = LoaderProcesses(min=1, max=4, lag_records=100, up_after_ms=1_000, down_after_ms=5_000)


def test_shares_are_spread_evenly_with_the_fewest_moves_whoever_joins_and_leaves() -> None:
    chooser = random.Random(58)
    for _ in range(so_many(40)):
        assigned: dict[int, int | None] = dict.fromkeys(range(chooser.randrange(1, 20)))
        for _ in range(10):
            members = chooser.sample(range(8), chooser.randrange(1, 6))
            before, assigned = assigned, assign(assigned, members)
            counts = Counter(assigned.values())
            sizes = [counts[member] for member in members]
            assert counts.keys() <= set(members)
            assert max(sizes) - min(sizes) <= 1
            even, more = divmod(len(assigned), len(members))
            own = sorted((Counter(before.values())[member] for member in members), reverse=True)
            stayed = sum(min(have, even + (place < more)) for place, have in enumerate(own))
            assert sum(before[share] == process for share, process in assigned.items()) == stayed
            assert assign(assigned, members) == assigned


def test_nothing_moves_while_no_process_lives() -> None:
    assert assign({0: 1, 1: None}, []) == {0: 1, 1: None}


def test_the_lowest_numbers_stay_where_fewer_processes_are_wanted() -> None:
    assert staying([3, 1, 5], 2) == [1, 3]
    assert staying([2], 3) == [2]


def test_more_processes_come_only_after_the_lag_has_lasted() -> None:
    state = first_count(POLICY, None)
    state = next_count(POLICY, state, 350, 0)
    assert state == CountState(1, above_since_ms=0)
    assert next_count(POLICY, state, 350, 999).number == 1
    assert next_count(POLICY, state, 350, 1_000) == CountState(4)
    assert next_count(POLICY, next_count(POLICY, state, 50, 500), 350, 1_000).number == 1


def test_fewer_processes_are_left_one_by_one_and_only_where_they_do_for_twice_the_lag() -> None:
    state = CountState(4)
    assert next_count(POLICY, state, 160, 0) == CountState(4)  # twice that needs four
    state = next_count(POLICY, state, 100, 0)
    assert state == CountState(4, below_since_ms=0)
    assert next_count(POLICY, state, 100, 4_999).number == 4
    state = next_count(POLICY, state, 100, 5_000)
    assert state == CountState(3)
    assert next_count(POLICY, state, 100, 5_001) == CountState(3, below_since_ms=5_001)


def test_an_unknown_lag_changes_nothing_and_begins_the_wait_anew() -> None:
    assert next_count(POLICY, CountState(2, above_since_ms=0), None, 10_000) == CountState(2)


def test_a_lag_that_swings_about_a_border_moves_no_process() -> None:
    chooser = random.Random(7)
    state, numbers = CountState(2), set()
    for now_ms in range(0, 200_000, 500):
        state = next_count(POLICY, state, chooser.randrange(101, 200), now_ms)
        numbers.add(state.number)
    assert numbers == {2}


def test_the_number_stays_within_the_bounds_whatever_the_lag_does() -> None:
    chooser = random.Random(8)
    state = first_count(POLICY, 99)
    for now_ms in range(0, 100_000, 100):
        state = next_count(POLICY, state, chooser.choice((None, 0, 10, 10**9)), now_ms)
        assert POLICY.min <= state.number <= POLICY.max
    assert first_count(LoaderProcesses(min=3, max=3), 1).number == 3


def test_each_state_of_a_share_takes_each_event_but_the_end_of_what_does_not_run() -> None:
    legal = {(state, event) for state in ShareState for event in ShareEvent}
    assert TRANSITIONS.keys() == legal - {(ShareState.NOT_OWNED, ShareEvent.ENDED)}
    with pytest.raises(IllegalTransition, match="share 3"):
        transition(3, ShareState.NOT_OWNED, ShareEvent.ENDED)
    taking = [key for key, (_, action) in TRANSITIONS.items() if action is ShareAction.TAKE]
    assert taking == [(ShareState.NOT_OWNED, ShareEvent.ASSIGNED)]


def test_every_partition_is_in_one_share() -> None:
    for shares in range(1, 9):
        portions = [Portion(number, shares) for number in range(shares)]
        for partition in range(50):
            (owner,) = (portion.number for portion in portions if portion.has_partition(partition))
            assert owner == share_of_partition(partition, shares)


def test_labels_of_shares_and_of_undivided_jobs_are_never_the_same() -> None:
    jobs = ("a", "a_1", "a_1_s0", "a_1_s0_2")
    labels = [
        label_of(job, incarnation, batch, share)
        for job in jobs
        for incarnation in (1, 2)
        for batch in range(3)
        for share in (None, 0, 1)
    ]
    assert len(set(labels)) == len(labels)


def test_a_topic_is_divided_into_no_more_shares_than_it_has_partitions() -> None:
    assert shares_of(LoaderProcesses(max=4), 100) == 8
    assert shares_of(LoaderProcesses(max=4), 3) == 3
    assert shares_of(LoaderProcesses(max=4, shares=50), 20) == 20
    assert shares_of(LoaderProcesses(max=4), 0) == 1
