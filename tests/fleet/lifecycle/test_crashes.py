"""Seeded lives of brokers whose operators crash at every step: nothing is lost, doubled or left half done."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import pytest
from rtolap.base.errors import RtolapError
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.states import CORDONED_IN, OBSERVED, TRANSITIONS, Action, BrokerEvent, legal
from rtolap.metadata.store import Operation

from tests.support.fleet.broker_lives import LOST_AFTER_MS, BrokerLives
from tests.support.seeds import so_many

LIVES = so_many(40, 60)
STEPS = 40


class Crash(BaseException):
    """The process is gone: nothing catches it."""


class CrashingActions(ClusterActions):
    def __init__(self, lives: BrokerLives, chance: random.Random, seen: Counter[str]) -> None:
        super().__init__(lives.administration, lives.drains)
        self._chance = chance
        self._seen = seen

    def _crash(self, moment: str) -> None:
        if self._chance.random() < 0.1:
            self._seen[f"crash {moment}"] += 1
            raise Crash

    def cordon(self, broker: int) -> None:
        self._crash("before cordon")
        super().cordon(broker)
        self._crash("after cordon")

    def uncordon(self, broker: int) -> None:
        self._crash("before uncordon")
        super().uncordon(broker)
        self._crash("after uncordon")

    def submit_drain(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        self._crash("before drain")
        super().submit_drain(broker, drain_id, by, reason)
        self._crash("after drain")

    def cancel_drain(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        self._crash("before cancel")
        super().cancel_drain(broker, drain_id, by, reason)
        self._crash("after cancel")

    def unregister(self, broker: int) -> None:
        self._seen["UNREGISTER"] += 1
        self._crash("before unregister")
        super().unregister(broker)
        self._crash("after unregister")


def run_seed(seed: int) -> Counter[str]:
    chance = random.Random(seed)
    lives = BrokerLives()
    seen: Counter[str] = Counter()
    asked = [event for event in BrokerEvent if event not in OBSERVED and event is not BrokerEvent.ADD]

    def fault(_: Sequence[Operation]) -> Literal["before", "after"] | None:
        drawn = chance.random()
        if drawn < 0.05:
            seen["crash in a commit"] += 1
            raise Crash
        return "before" if drawn < 0.1 else "after" if drawn < 0.15 else None

    lives.ensemble.fault = fault
    for step in range(STEPS):
        operations = lives.operations(CrashingActions(lives, chance, seen))
        broker = chance.randint(1, 5)
        drawn = chance.random()
        try:
            if drawn < 0.1:
                lives.kafka.stop_broker(broker)
            elif drawn < 0.25:
                lives.kafka.start_broker(broker)
            elif drawn < 0.4:
                lives.finish_moves()
            elif drawn < 0.6:
                lives.clock.advance_ms(chance.choice((0, LOST_AFTER_MS)))
                operations.observe(lives.snapshot())
            else:
                record = operations.records().get(broker)
                able = [event for event in asked if record is None or legal(record.state, event)]
                event = chance.choice(able if able and chance.random() < 0.8 else asked)
                operations.operate(broker, event, "ann", "drawn", lives.snapshot(), f"{seed}-{step}")
                seen[event] += 1
        except (RtolapError, Crash) as error:
            seen[type(error).__name__] += 1
    lives.ensemble.fault = None
    for broker in lives.kafka.brokers:
        lives.kafka.start_broker(broker)
    lives.finish_moves()
    for _ in range(3):
        assert lives.operations().observe(lives.snapshot()) == {}
    _check(lives)
    lives.close()
    return seen


def _check(lives: BrokerLives) -> None:
    operations = lives.operations()
    for broker, record in operations.records().items():
        assert record.pending == ()
        wanted = CORDONED_IN[record.state]
        if wanted is not None:
            assert lives.cordoned(broker) == (wanted is Action.CORDON), record.told
        entries = operations.entries(broker)
        assert [entry.number for entry in entries] == list(range(1, record.entries + 1))
        assert entries[-1].after is record.state
        for before, entry in pairwise(entries):
            assert entry.before is before.after
            assert entry.event is not None
            assert TRANSITIONS[before.after, entry.event][0] is entry.after
        ids = [entry.operation_id for entry in entries]
        assert len(set(ids)) == len(ids)
    assert all(times == 1 for times in lives.drains.submitted.values())


@pytest.mark.seeded
def test_whatever_crashes_the_record_and_the_cluster_agree_in_the_end() -> None:
    seen: Counter[str] = Counter()
    for seed in range(LIVES):
        seen += run_seed(seed)
    for met in (
        *("CORDON", "UNCORDON", "DRAIN", "CANCEL_DRAIN", "REPAIR", "REPAIRED", "RETIRE", "UNREGISTER"),
        *("crash before cordon", "crash after cordon", "crash before drain", "crash after drain"),
        *("crash after uncordon", "crash in a commit", "Refused", "IllegalTransition", "Unavailable"),
    ):
        assert seen[met], met
