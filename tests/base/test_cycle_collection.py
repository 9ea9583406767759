"""Cycles are collected by the clock and by their number, never by the number of objects that come and go; and
threads share memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap

import pytest

from tests.support.paths import PYTHONPATH

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
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

ARENAS = """
    import ctypes, sys, tempfile, threading
    from pathlib import Path
    from rtolap.base.cycle_collection import ARENAS_MAX, share_arenas

    if sys.argv[1] == "shared":
        share_arenas()
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    together = threading.Barrier(2 * ARENAS_MAX)

    def allocate() -> None:
        library.malloc(100_000)
        together.wait()

    threads = [threading.Thread(target=allocate) for _ in range(2 * ARENAS_MAX)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    library.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as told:
        stream = ctypes.c_void_p(library.fopen(told.name.encode(), b"w"))
        library.malloc_info(0, stream)
        library.fclose(stream)
        arenas = Path(told.name).read_text().count("<heap nr=")
    assert (arenas <= ARENAS_MAX) == (sys.argv[1] == "shared"), arenas
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas")
@pytest.mark.parametrize("arenas", ["shared", "of each thread"])
def test_threads_share_a_few_arenas(arenas: str) -> None:
    _run(ARENAS, arenas)


def test_cycles_go_by_the_clock_and_by_number() -> None:
    _run(SCRIPT)


def _run(script: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        env={**_ENVIRONMENT, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
