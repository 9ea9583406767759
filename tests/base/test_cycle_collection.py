"""Cycles are collected by the clock and by their number, never by the number of objects that come and go."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from tests.support.paths import PYTHONPATH

SCRIPT = """
    import gc, weakref
    from tests.support.twins.clock import ManualClock
    from rtolap.base import cycle_collection
    from rtolap.base.cycle_collection import ALL_EVERY_S, YOUNG_EVERY_S, CycleCollection

    class Node:
        pass

    def cycle() -> weakref.ref:
        node = Node()
        node.itself = node
        return weakref.ref(node)

    clock = ManualClock(0)
    collection = CycleCollection(clock)
    collection.begin()
    gone = cycle()
    for _ in range(100_000):
        [Node()]
    collection.collect_if_due()
    assert gone() is not None, "collected too soon"
    clock.advance_ms(int(YOUNG_EVERY_S * 1000))
    collection.collect_if_due()
    assert gone() is None, "not collected by the clock"

    held = Node()
    held.itself = held
    old = weakref.ref(held)
    for _ in range(3):
        clock.advance_ms(int(YOUNG_EVERY_S * 1000))
        collection.collect_if_due()
    del held
    clock.advance_ms(int(ALL_EVERY_S * 1000))
    collection.collect_if_due()
    assert old() is None, "an old cycle was not collected"

    gone = cycle()
    cycle_collection.NEW_OBJECTS_MAX = 1000
    kept = [Node() for _ in range(2000)]
    collection.collect_if_due()
    assert gone() is None, "not collected by number"
"""


def test_cycles_go_by_the_clock_and_by_number() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
