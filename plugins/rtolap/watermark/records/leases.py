"""The producers that write a topic, for the registry of the source that reads it.

A producer whose records are read is registered, and its lease renewed as long as they come: its control
records are its heartbeats. One that has stated its end is drained, so it leaves once it has been read so far;
one that was killed leaves with its lease. Requests go out from a thread of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rtolap.base.errors import NotFound, RtolapError

log = logging.getLogger(__name__)

_RENEWALS = 3  # within a lease
_RETRY_S = 0.5


class Answer(Protocol):
    @property
    def lease_ms(self) -> int | None: ...


class ChangeHosts(Protocol):
    """`protocols.coordinator.client.CoordinatorClient.change_hosts`."""

    def __call__(
        self, name: str, level: str, action: str, hosts: Sequence[str], end_ms: int | None = None
    ) -> Answer: ...


class ProducerLeases:
    """Leases of producers. They are thread-safe. `problem` is the error of the last request; None if it had
    none."""

    def __init__(self, change_hosts: ChangeHosts, application: str, level: str) -> None:
        self.problem: str | None = None
        self._change_hosts = change_hosts
        self._application = application
        self._level = level
        self._lock = threading.Lock()
        self._heard: set[str] = set()  # since the last renewal
        self._lease_s = 0.0
        self._renewed_s: dict[str, float] = {}  # when, of a lease that was given
        self._ending: dict[str, int | None] = {}
        self._drained: set[str] = set()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"producers-of-{level}", daemon=True)
        self._thread.start()

    def heard(self, producers: Iterable[str]) -> None:
        over_s = time.monotonic() - self._lease_s
        with self._lock:
            for producer in producers:
                self._heard.add(producer)
                self._drained.discard(producer)  # a new generation has come
                self._ending.pop(producer, None)
                if self._renewed_s.get(producer, over_s) <= over_s:
                    self._wake.set()

    def ended(self, producers: Mapping[str, int | None]) -> None:
        """Return those whose lease has ended, with their last watermark, if they knew one."""
        with self._lock:
            for producer, end_ms in producers.items():
                if producer not in self._drained and producer not in self._ending:
                    self._ending[producer] = end_ms
                    self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join()

    def turn(self) -> float:
        """Send what is due; returns the seconds until the next turn. Raises what a request raises."""
        with self._lock:
            renewed, ending = set(self._heard), dict(self._ending)
        if renewed:
            requested_s = time.monotonic()
            self._lease_s = (self._ask("register", sorted(renewed)).lease_ms or 0) / 1000
            with self._lock:
                self._renewed_s.update(dict.fromkeys(renewed, requested_s))
                self._heard -= renewed
        for producer, end_ms in sorted(ending.items()):
            try:
                self._ask("drain", [producer], end_ms)
            except NotFound:
                log.info("producer %s has left %s already", producer, self._level)
            with self._lock:
                self._renewed_s.pop(producer, None)
                if producer in self._ending:
                    del self._ending[producer]
                    self._drained.add(producer)
                else:
                    self._wake.set()  # it has written again meanwhile, and is registered again
        self.problem = None
        return self._lease_s / _RENEWALS if self._lease_s else _RETRY_S

    def _ask(self, action: str, hosts: Sequence[str], end_ms: int | None = None) -> Answer:
        return self._change_hosts(self._application, self._level, action, hosts, end_ms)

    def _run(self) -> None:
        pause_s = _RETRY_S
        while not self._closing:
            self._wake.wait(pause_s)
            self._wake.clear()
            try:
                pause_s = self.turn()
            except RtolapError as error:
                if self.problem != str(error):
                    log.warning("producers of %s are not registered yet: %s", self._level, error)
                self.problem, pause_s = str(error), _RETRY_S
            except Exception as error:  # a bug here must not look like producers that have left
                log.exception("the leases of %s failed", self._level)
                self.problem, pause_s = f"{type(error).__name__}: {error}", _RETRY_S
