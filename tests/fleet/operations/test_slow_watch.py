"""A watch from look to look: judged as often as it is asked, and never by a window that says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rtolap.base.errors import Unavailable
from rtolap.fleet.monitoring.stages import RequestType
from rtolap.fleet.operations.slow_watch import EVERY_MS_MIN, SILENT_MS_MAX, SlowWatch

from tests.support.fleet.broker_metrics import MemoryBroker, jolokia_answer
from tests.support.fleet.served_pages import agent, declared
from tests.support.twins.clock import ManualClock


class Watched:
    """Brokers 1 and 2 behind agents, and 3 that nobody serves."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.brokers = {1: MemoryBroker(), 2: MemoryBroker()}
        self.clock = ManualClock(1_000_000)
        text = "brokers:\n  3: {jolokia: 'http://127.0.0.1:1/jolokia'}\n"
        for broker in self.brokers:
            url = opened.enter_context(
                agent(lambda _, of=broker: (200, jolokia_answer(self.brokers[of], of)))  # type: ignore[misc]
            )
            text += f"  {broker}: {{jolokia: '{url}'}}\n"
        self.watch = opened.enter_context(SlowWatch(declared(folder, text), self.clock))

    def served(self, local_ms: float) -> None:
        """Let time pass in which broker 1 takes so long for a write, and broker 2 does not."""
        self.clock.advance_ms(5_000)
        self.brokers[1].serve(RequestType.PRODUCE, 1000, local=local_ms)
        self.brokers[2].serve(RequestType.PRODUCE, 1000, local=5)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with ExitStack() as opened:
        yield Watched(tmp_path, opened)


def test_the_first_look_judges_nobody_and_names_who_is_silent(watched: Watched) -> None:
    watched.served(5)
    look = watched.watch.look()
    assert (look.window, look.judged, look.documents()) == (None, (), [])
    assert [each.broker for each in look.missing] == [3]


def test_a_broker_is_slow_after_as_many_looks_as_the_rule_demands_and_the_stage_is_named(
    watched: Watched,
) -> None:
    states = []
    for _ in range(watched.watch.rule.looks + 1):
        watched.served(900)
        states.append({row["broker"]: row["state"] for row in watched.watch.look().documents()})
    assert states[0] == {}
    assert states[1] == {1: "SUSPECTED", 2: "NORMAL"}
    assert states[-1] == {1: "SLOW", 2: "NORMAL"}
    slow, well = watched.watch.look().documents()
    assert (slow["broker"], slow["is_slow"], slow["stage"], slow["requests"]) == (1, True, "local", 1000)
    assert isinstance(slow["stages"], dict)
    assert slow["stages"]["local"]["p99_ms"] == 900
    assert (well["is_slow"], well["cause"]) == (False, "")


def test_who_asks_again_at_once_gets_the_same_look(watched: Watched) -> None:
    watched.served(5)
    first = watched.watch.look()
    watched.clock.advance_ms(EVERY_MS_MIN - 1)
    assert watched.watch.look() is first
    watched.clock.advance_ms(1)
    assert watched.watch.look() is not first


def test_after_a_long_silence_it_begins_again(watched: Watched) -> None:
    for _ in range(watched.watch.rule.looks + 1):
        watched.served(900)
        watched.watch.look()
    watched.clock.advance_ms(SILENT_MS_MAX + 1)
    watched.served(900)
    assert watched.watch.look().window is None
    watched.served(900)
    states = {row["broker"]: row["state"] for row in watched.watch.look().documents()}
    assert states == {1: "SUSPECTED", 2: "NORMAL"}


def test_a_watch_that_is_closed_looks_no_more(watched: Watched) -> None:
    watched.served(5)
    watched.watch.look()
    watched.watch.close()
    with pytest.raises(Unavailable, match="look again"):
        watched.watch.look()
