"""A fleet that runs well, then stalls twice, in front of a cluster that closes windows by its watermark.

    calm    the hosts' rates are learnt
    few     once or more: quiet hosts, which carry less than the bound, stall until their window has closed
    many    a twentieth of the hosts, which carry more, stall until that window has waited for a while
    calm    until every window that has begun has closed

What happens next is decided by what the cluster did, not by time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rtolap.base.clock import Clock
from rtolap.protocols.watermark.messages import Explanation

from tests.support.cubes.services import wait_for
from tests.support.watermarks.access_logs import AccessLogs, Window
from tests.support.watermarks.host_events import Hosts
from tests.support.watermarks.host_stream import HostStream

CALM_WINDOWS = 3
FEW = 5
DEADLINE_S = 90.0
HELD_S = 5.0
_FIRST = 0.5  # of a window: when the first host stalls
_NEAR_MEAN = 0.5


class Few(NamedTuple):
    """A stall of few hosts. `unsent` are events of the window that were still with them when it had
    closed."""

    window: Window
    unsent: int


class Many(NamedTuple):
    """A stall of many hosts. `explained` is when all the others had passed the window, which was not closed
    before `released_ms`."""

    window: Window
    hosts: frozenset[str]
    explained: Explanation
    released_ms: int


class Played(NamedTuple):
    """`windows`: all of them, in order."""

    windows: tuple[Window, ...]
    few: tuple[Few, ...]
    many: Many


class Stalls:
    """The stream has been started. What is drawn is drawn by the fleet's seed."""

    def __init__(self, logs: AccessLogs, stream: HostStream, clock: Clock) -> None:
        self._logs, self._stream, self._clock = logs, stream, clock
        self._random = np.random.default_rng([stream.fleet.seed, 3])

    def play(
        self, stalled: int, *, few_times: int = 1, while_waiting: Callable[[], None] = lambda: None
    ) -> Played:
        """Play stalls. `stalled` is how many are many; `few_times` how often a few stall before;
        `while_waiting` what befalls the cluster while a window waits for the many. Raises AssertionError
        where a window closes too early, or does not close."""
        stream, quiet = self._stream, self._stream.fleet.quiet
        self._until_closed(self._window(CALM_WINDOWS - 1))
        few = tuple(self._stall_few(quiet[at * FEW : (at + 1) * FEW]) for at in range(few_times))
        many = self._stall_many(
            np.concatenate([quiet, self._near_the_mean(stalled - quiet.size)]), while_waiting
        )
        last = self._window((self._clock.now_ms() - stream.start_ms) // stream.window_ms)
        self._until_closed(last)
        stream.finish()
        return Played(tuple(self._window(number) for number in range(last.number + 1)), few, many)

    def _stall_few(self, hosts: Hosts) -> Few:
        window = self._stall(hosts, 0.7)
        self._until_closed(window)
        unsent = self._stream.logged(window.number) - self._stream.sent(window.number)
        self._stream.release(hosts)
        return Few(window, unsent)

    def _stall_many(self, hosts: Hosts, while_waiting: Callable[[], None]) -> Many:
        window = self._stall(hosts, 0.9)
        explained = self._only_behind(window, len(hosts))
        while_waiting()
        until_s = time.monotonic() + HELD_S
        while time.monotonic() < until_s:
            assert self._logs.closed_ms(window) is None, f"window {window.number} closed without its hosts"
            time.sleep(0.2)
        released_ms = self._clock.now_ms()
        self._stream.release(hosts)
        self._until_closed(window)
        names = frozenset(self._stream.fleet.names[at] for at in hosts.tolist())
        return Many(window, names, explained, released_ms)

    def _only_behind(self, window: Window, hosts: int) -> Explanation:
        """Explain once at most so many hosts have not passed the window."""
        found: list[Explanation] = []

        def others_have_passed() -> bool:
            found.append(self._logs.explain(window))
            assert not found[-1].may_close, f"window {window.number} may close without its stalled hosts"
            late = [re.search(r"(\d+) of \d+ hosts behind", reason) for reason in found[-1].reasons]
            return any(one is not None and int(one[1]) <= hosts for one in late)

        wait_for(f"the other hosts to pass window {window.number}", others_have_passed, DEADLINE_S)
        return found[-1]

    def _stall(self, hosts: Hosts, last: float) -> Window:
        """Stall hosts from `_FIRST` to `last` of a window, each at another moment; return the next window
        that can be taken."""
        length_ms = self._stream.window_ms
        passed = (self._clock.now_ms() - self._stream.start_ms) / length_ms
        window = self._window(int(np.ceil(passed - _FIRST)))
        shares = self._random.uniform(_FIRST, last, hosts.size)
        self._stream.stall(hosts, window.start_ms + (shares * length_ms).astype(np.int64))
        return window

    def _near_the_mean(self, count: int) -> Hosts:
        rates = self._stream.fleet.events_per_s
        near = np.flatnonzero(np.abs(rates / rates.mean() - 1.0) < _NEAR_MEAN)
        chosen: Hosts = self._random.choice(near, count, replace=False)
        return chosen

    def _window(self, number: int) -> Window:
        start_ms = self._stream.start_ms + number * self._stream.window_ms
        return Window(number, start_ms, start_ms + self._stream.window_ms)

    def _until_closed(self, window: Window) -> None:
        def closed() -> bool:
            assert self._stream.problem is None, self._stream.problem
            return self._logs.closed_ms(window) is not None

        wait_for(f"window {window.number} to close", closed, DEADLINE_S)
