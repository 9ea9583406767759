"""Who is called slow: not for long polls, not for a moment, not for few requests, and in which stage."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.fleet.monitoring.causes import LogDirShare, cause_of
from rtolap.fleet.monitoring.collect import MissingSource, StageLook
from rtolap.fleet.monitoring.readings import BrokerGauges
from rtolap.fleet.monitoring.slow import (
    TRANSITIONS,
    BrokerRequests,
    BrokerStanding,
    Key,
    SlowEvent,
    SlowRule,
    SlowState,
    judge,
    transition,
)
from rtolap.fleet.monitoring.stages import RequestType, Stage, StageWindow, between

from tests.support.fleet.broker_metrics import MemoryBroker, look_at

RULE = SlowRule()
PRODUCE, FETCH = RequestType.PRODUCE, RequestType.FETCH_CONSUMER


class Watched:
    """Brokers in memory, looked at again and again."""

    def __init__(self, *brokers: int, rule: SlowRule = RULE) -> None:
        self.brokers = {broker: MemoryBroker() for broker in brokers}
        self.gauges: dict[int, BrokerGauges] = {}
        self.missing: list[MissingSource] = []
        self.rule = rule
        self.standings: dict[Key, BrokerStanding] = {}
        for broker in self.brokers.values():
            for request in RequestType:
                broker.serve(request, local=1)
        self.at_ms = 0
        self.look_now = look_at(self.brokers, 0)
        self.window: StageWindow

    def look(self) -> dict[Key, BrokerRequests]:
        self.at_ms += 5000
        before: StageLook = self.look_now
        self.look_now = look_at(self.brokers, self.at_ms, self.gauges, self.missing)
        self.window = between(before.stages, before.at_ms, self.look_now.stages, self.at_ms)
        self.standings, rows = judge(self.standings, self.window, self.rule)
        return {(row.broker, row.request): row for row in rows}


def test_an_idle_broker_with_long_polls_is_not_slow_however_long_they_take() -> None:
    watched = Watched(1)
    for _ in range(10):
        watched.brokers[1].serve(FETCH, 2000, local=1, remote=5000)
        watched.brokers[1].serve(RequestType.FETCH_FOLLOWER, 2000, remote=500)
        rows = watched.look()
        assert {row.standing.state for row in rows.values()} == {SlowState.NORMAL}
        assert rows[1, FETCH].p99_ms_max <= 1


@pytest.mark.parametrize(
    ("request_type", "times", "stage"),
    [
        (PRODUCE, {"local": 400.0, "remote": 20.0}, Stage.LOCAL),
        (PRODUCE, {"remote": 900.0, "local": 30.0}, Stage.REMOTE),
        (FETCH, {"local": 350.0, "remote": 5000.0}, Stage.LOCAL),
        (FETCH, {"send": 700.0, "remote": 5000.0}, Stage.SEND),
        (RequestType.FETCH_FOLLOWER, {"request_queue": 301.0}, Stage.REQUEST_QUEUE),
    ],
)
def test_a_slow_broker_is_called_so_after_some_looks_with_its_stage(
    request_type: RequestType, times: dict[str, float], stage: Stage
) -> None:
    watched = Watched(1, 2)
    states = []
    for _ in range(RULE.looks):
        watched.brokers[1].serve(request_type, 980, local=1)
        watched.brokers[1].serve(request_type, 20, **times)
        watched.brokers[2].serve(request_type, 1000, local=1)
        row = watched.look()[1, request_type]
        states.append(row.standing.state)
    assert states == [SlowState.SUSPECTED] * (RULE.looks - 1) + [SlowState.SLOW]
    assert row.stage is stage
    assert row.standing.since_ms == watched.at_ms
    others = [key for key, standing in watched.standings.items() if standing.state is not SlowState.NORMAL]
    assert others == [(1, request_type)]


def test_a_write_is_not_slow_by_a_total_that_its_stages_rule_out() -> None:
    watched = Watched(1)
    watched.brokers[1].serve(PRODUCE, 50, remote=600)
    watched.brokers[1].serve(PRODUCE, 250, local=1)
    watched.look()
    for _ in range(RULE.looks):
        watched.brokers[1].serve(PRODUCE, 200, local=30)
        row = watched.look()[1, PRODUCE]
        assert watched.window.p99_ms[0, Stage.TOTAL] == 600
        assert row.p99_ms == 30
    assert row.standing.state is SlowState.NORMAL


def test_few_requests_are_no_reading_and_leave_everything_as_it_stands() -> None:
    watched = Watched(1)
    for _ in range(5):
        watched.brokers[1].serve(PRODUCE, RULE.requests_min - 1, local=900)
        assert watched.look()[1, PRODUCE].standing.state is SlowState.NORMAL
    for _ in range(RULE.looks):
        watched.brokers[1].serve(PRODUCE, RULE.requests_min, local=900)
        watched.look()
    assert watched.standings[1, PRODUCE].state is SlowState.SLOW
    for _ in range(5):
        watched.brokers[1].serve(PRODUCE, RULE.requests_min - 1, local=1)
        assert watched.look()[1, PRODUCE].is_slow


def test_one_pause_is_not_slow_and_one_good_moment_is_no_recovery() -> None:
    watched = Watched(1)
    times = [900, 1, 900, 900, 900, 1, 900, 1, 1, 1]
    states = []
    for time_ms in times:
        watched.brokers[1].serve(PRODUCE, 2000, local=time_ms)
        states.append(watched.look()[1, PRODUCE].standing.state.value[0])
    assert "".join(states) == "SNSSSRSRRN"


def test_a_broker_between_the_two_thresholds_stays_what_it_was() -> None:
    watched = Watched(1)
    watched.brokers[1].serve(PRODUCE, 2000, local=270)
    assert watched.look()[1, PRODUCE].standing.state is SlowState.NORMAL
    for _ in range(RULE.looks):
        watched.brokers[1].serve(PRODUCE, 2000, local=500)
        watched.look()
    for _ in range(5):
        watched.brokers[1].serve(PRODUCE, 2000, local=270)
        assert watched.look()[1, PRODUCE].standing.state is SlowState.SLOW


def test_a_fetch_whose_stages_only_together_might_be_slow_is_not_called_so() -> None:
    watched = Watched(1)
    for _ in range(5):
        watched.brokers[1].serve(FETCH, 1000, local=200, send=200)
        row = watched.look()[1, FETCH]
    assert (row.p99_ms, row.p99_ms_max) == (200, 400)
    assert row.standing.state is SlowState.NORMAL


def test_a_broker_that_does_not_answer_neither_recovers_nor_becomes_slow() -> None:
    watched = Watched(1)
    for _ in range(RULE.looks):
        watched.brokers[1].serve(PRODUCE, 2000, local=500)
        watched.look()
    broker = watched.brokers.pop(1)
    for _ in range(5):
        assert watched.look() == {}
    assert watched.standings[1, PRODUCE].state is SlowState.SLOW
    watched.brokers[1] = broker
    assert watched.look()[1, PRODUCE].requests == -1


def test_a_client_that_a_quota_mutes_is_not_a_slow_broker() -> None:
    watched = Watched(1)
    for _ in range(5):
        watched.brokers[1].serve(PRODUCE, 1000, local=2, throttle=4000)
        row = watched.look()[1, PRODUCE]
    assert row.standing.state is SlowState.NORMAL
    assert (row.throttle_p99_ms, row.p99_ms) == (4000, 2)


def test_every_state_says_what_follows_and_what_does_not() -> None:
    for state, event in itertools.product(SlowState, SlowEvent):
        if (state, event) in TRANSITIONS:
            assert transition(state, event, subject="broker 1") in SlowState
        else:
            with pytest.raises(IllegalTransition, match="broker 1 cannot take CONFIRMED"):
                transition(state, event, subject="broker 1")


def test_behind_a_slow_local_stage_is_the_directory_with_the_highest_share_or_one_that_is_offline() -> None:
    watched = Watched(1)
    watched.brokers[1].serve(PRODUCE, 1000, local=500)
    row = watched.look()[1, PRODUCE]
    shares = {1: [LogDirShare(1, "/d1", 0.9, "bytes written and read", False)]}
    found = cause_of(row, watched.look_now, watched.window, shares)
    assert found is not None
    assert found.log_dir == "/d1"
    assert "90% of its bytes written and read" in found.text
    watched.gauges[1] = BrokerGauges(offline_log_dirs=("/d0",))
    watched.brokers[1].serve(PRODUCE, 1000, local=500)
    row = watched.look()[1, PRODUCE]
    found = cause_of(row, watched.look_now, watched.window, shares)
    assert found is not None
    assert found.log_dir == "/d0"


def test_behind_a_slow_remote_stage_are_silent_followers_then_those_that_lag() -> None:
    watched = Watched(1, 2, 3)
    watched.gauges = {2: BrokerGauges(lag_records_max=7), 3: BrokerGauges(lag_records_max=70)}
    watched.brokers[1].serve(PRODUCE, 1000, remote=500)
    row = watched.look()[1, PRODUCE]
    found = cause_of(row, watched.look_now, watched.window, {})
    assert found is not None
    assert found.brokers == (3, 2)
    watched.missing = [MissingSource("Jolokia of broker 4", "timed out", 4)]
    watched.brokers[1].serve(PRODUCE, 1000, remote=500)
    row = watched.look()[1, PRODUCE]
    found = cause_of(row, watched.look_now, watched.window, {})
    assert found is not None
    assert found.brokers == (4,)


def test_behind_a_long_request_queue_is_what_handlers_are_busy_with() -> None:
    watched = Watched(1)
    watched.gauges = {1: BrokerGauges(handlers_idle=0.01)}
    watched.brokers[1].serve(PRODUCE, 1000, request_queue=500, local=1)
    watched.brokers[1].serve(FETCH, 1000, local=90)
    row = watched.look()[1, PRODUCE]
    shares = {1: [LogDirShare(1, "/d1", 1.0, "bytes stored", False)]}
    found = cause_of(row, watched.look_now, watched.window, shares)
    assert found is not None
    assert "busy with FetchConsumer" in found.text
    assert found.log_dir == "/d1"


def test_nothing_is_said_of_a_broker_without_requests() -> None:
    watched = Watched(1)
    row = watched.look()[1, PRODUCE]
    assert row.stage is None
    assert np.isnan(row.p99_ms)
    assert cause_of(row, watched.look_now, watched.window, {}) is None
