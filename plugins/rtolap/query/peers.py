"""Calls of peers that can all answer: when one fails, or does not even answer a ping, the next is called.

A peer that computes for long answers pings meanwhile, and the caller waits for it. A peer that is stopped, or
whose machine is gone, answers none, and costs a statement less than a second. The first answer counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from rtolap.base.clock import Clock
from rtolap.base.closeable import Closeable
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.base.ids import CarryingPool
from rtolap.protocols.flight.client import PING_AFTER_S, PING_AGAIN_S, silence
from rtolap.query.cancel import Cancellation

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class QueryPeer:
    """A server that answers calls.

    Attributes:
        address: host:port.
    """

    name: str
    address: str


class PeersFailed(Unavailable):
    """The error that no peer has answered.

    Attributes:
        failures: the error of each peer, in the order in which they failed.
    """

    code = "peers_failed"

    def __init__(self, failures: Sequence[tuple[QueryPeer, RtolapError]]) -> None:
        self.failures = tuple(failures)
        super().__init__("; ".join(f"{peer.name}: {error}" for peer, error in failures) or "none is live")


class Attempt:
    """A call of a peer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._given_up = False

    @property
    def given_up(self) -> bool:
        """True if no caller waits for the answer any more."""
        return self._given_up

    def on_give_up(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the attempt is given up; at once if it already is."""
        with self._lock:
            if not self._given_up:
                self._callbacks.append(callback)
                return
        callback()

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class QueryPeers(Closeable):
    """Calls peers on threads, at most `calls_max` at a time; more calls wait. Thread-safe.

    `ping(peer, within_s)` raises Unavailable when the peer does not answer in time.
    """

    def __init__(
        self, name: str, calls_max: int, ping: Callable[[QueryPeer, float], None], clock: Clock
    ) -> None:
        self._ping = ping
        self._clock = clock
        self._calls = CarryingPool(calls_max, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._silent: dict[str, float] = {}  # address -> when it was pinged last, monotonic seconds

    def close(self) -> None:
        self._calls.shutdown(wait=False, cancel_futures=True)

    def ask(
        self,
        peers: Sequence[QueryPeer],
        call: Callable[[QueryPeer, Attempt], T],
        ending: Cancellation,
        elsewhere: tuple[type[RtolapError], ...],
        *,
        fails_when_silent: bool = False,
    ) -> tuple[QueryPeer, T]:
        """Return the peer that answered first, and its answer.

        `call` runs on another thread. A second call may run beside it, if its peer is silent.

        Args:
            elsewhere: kinds of errors after which the next peer is called.
            fails_when_silent: True if the last peers, too, have failed once they are silent.

        Raises PeersFailed when all peers have failed in this way. Every other error of a call is raised as it
        is. The error that ends the statement is raised without waiting for any peer.
        """
        ended_early: Future[Any] = Future()
        ending.on_cancel(lambda: ended_early.set_result(None))
        left = list(self.ordered(peers))
        running: dict[Future[T], tuple[QueryPeer, Attempt]] = {}
        silent: set[QueryPeer] = set()
        failures: list[tuple[QueryPeer, RtolapError]] = []
        try:
            while True:
                if left and all(peer in silent for peer, _ in running.values()):
                    peer, attempt = left.pop(0), Attempt()
                    running[self._calls.submit(call, peer, attempt)] = (peer, attempt)
                if not running:
                    raise PeersFailed(failures)
                ping_after_s = PING_AFTER_S if left or fails_when_silent else None
                ended, _ = wait((*running, ended_early), ping_after_s, FIRST_COMPLETED)
                ending.check()
                for work in ended:
                    peer, _ = running.pop(work)
                    error = work.exception()
                    if error is None:
                        return peer, work.result()
                    if not isinstance(error, elsewhere):
                        raise error
                    failures.append((peer, error))
                if not ended:
                    silent.update(peer for peer, _ in running.values() if not self._answers(peer))
                    if fails_when_silent and not left and all(p in silent for p, _ in running.values()):
                        raise PeersFailed([*failures, *((p, _silence(p)) for p, _ in running.values())])
        finally:
            for _, attempt in running.values():
                attempt.give_up()

    def ordered(self, peers: Sequence[QueryPeer]) -> list[QueryPeer]:
        """Return the peers; those that were silent last time come last.

        Silent peers are pinged again in the background.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            if not self._silent:
                return list(peers)
            silent = [peer for peer in peers if peer.address in self._silent]
            due = [peer for peer in silent if now_s - self._silent[peer.address] >= PING_AGAIN_S]
            self._silent.update({peer.address: now_s for peer in due})
        for peer in due:
            self._calls.submit(self._answers, peer)
        return [peer for peer in peers if peer not in silent] + silent

    def _answers(self, peer: QueryPeer) -> bool:
        error = silence(lambda within_s: self._ping(peer, within_s))
        with self._lock:
            if error is None:
                self._silent.pop(peer.address, None)
                return True
            news = peer.address not in self._silent
            self._silent[peer.address] = self._clock.monotonic_s()
        if news:
            log.warning("%s at %s is silent, others are asked first: %s", peer.name, peer.address, error)
        return False


def _silence(peer: QueryPeer) -> Unavailable:
    return Unavailable(f"{peer.name} at {peer.address} answers no ping")
