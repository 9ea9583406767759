"""The thread that sends the endpoints heartbeats: that this node lives, and where."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from rtolap.base.errors import RtolapError
from rtolap.protocols.storage.messages import Heartbeat, HeartbeatAnswer

log = logging.getLogger(__name__)


class Heartbeats:
    """An endpoint that does not answer is tried again with the next one: the lease is several of them
    long.
    """

    def __init__(
        self,
        send: Callable[[Heartbeat], HeartbeatAnswer],
        beat: Callable[[], Heartbeat],
        every_s: float,
    ) -> None:
        self._send, self._beat, self._every_s = send, beat, every_s
        self._stopping = Event()
        self.failure: str | None = None
        self._thread = Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.run_once()
            self._stopping.wait(self._every_s)

    def run_once(self) -> None:
        try:
            self._send(self._beat())
        except RtolapError as error:
            if self.failure is None:
                log.warning("no endpoint knows that this node lives: %s", error)
            self.failure = str(error)
            return
        except Exception as error:  # of the program, or of the disk: a node that goes silent looks dead
            log.exception("no endpoint is told that this node lives")
            self.failure = str(error)
            return
        if self.failure is not None:
            log.info("the endpoints know that this node lives")
        self.failure = None
