"""The state of each client's session with this owner, so that repeated and reordered batches change
nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import Refused
from rtolap.protocols.watermark.messages import Refusal, ReportBatch
from rtolap.watermark.hostlist import Hosts

CLIENTS_MAX = 10_000
SILENT_MS = 600_000  # afterwards a client begins a new session


@dataclass(slots=True)
class SessionNames:
    """Names of hosts in the order in which a session named them, and where each stands in the host list.

    Attributes:
        names: in that order.
        at: index of each in the host list; −1: the host is not listed.
        mapped_at: the state of the list for which `at` holds.
        mapped_epoch: the epoch of that list.
        missed: one of the names began to count later, because it was not listed or has left and returned
            meanwhile. What was reported of it has to be reported again.
    """

    names: list[str] = field(default_factory=list)
    at: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    mapped_at: object = None
    mapped_epoch: int = 0
    missed: bool = False

    def indices(self, hosts: Hosts, list_state: object) -> NDArray[np.int64]:
        """Return the indices of all names, as the list stands."""
        if self.mapped_at != list_state:
            before, self.at = self.at, hosts.indices(self.names)
            known_at = self.at[: before.size]
            self.missed |= bool((hosts.joined[known_at[known_at >= 0]] > self.mapped_epoch).any())
            self.mapped_at, self.mapped_epoch = list_state, hosts.epoch
        elif self.at.size < len(self.names):
            self.at = np.concatenate([self.at, hosts.indices(self.names[self.at.size :])])
        return self.at


@dataclass(slots=True)
class ReportSession:
    """The session in which a client reports.

    Attributes:
        sequence: number of the last batch that was taken; -1 before the first.
        heard_ms: time of the last batch, by this owner's clock.
        known: the client has begun the session with this owner.
        refused: entries of the batch with that `sequence`, for a client that repeats it.
        names: by level, the hosts that the session has named.
    """

    sequence: int
    heard_ms: int
    known: bool = False
    refused: tuple[Refusal, ...] = ()
    names: dict[str, SessionNames] = field(default_factory=dict)


class ReportSessions:
    """The sessions of clients that report. They are bounded: silent clients are forgotten, and more than
    `CLIENTS_MAX` are refused. The caller locks."""

    def __init__(self) -> None:
        self._sessions: dict[str, ReportSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, client_id: str) -> ReportSession | None:
        return self._sessions.get(client_id)

    def begin(self, batch: ReportBatch, now_ms: int) -> ReportSession:
        """Begin and return a session that knows nothing yet.

        Raises Refused where there are too many clients.
        """
        before = self._sessions.get(batch.client_id)
        if before is None and len(self._sessions) >= CLIENTS_MAX:
            raise Refused("too many clients report", expected=f"at most {CLIENTS_MAX}")
        session = ReportSession(-1 if before is None else before.sequence, now_ms, known=True)
        self._sessions[batch.client_id] = session
        return session

    def shift(self, step_ms: int) -> None:
        """Move the times at which clients were heard, because the clock was set."""
        for session in self._sessions.values():
            session.heard_ms += step_ms

    def forget_silent(self, now_ms: int) -> None:
        silent = [name for name, session in self._sessions.items() if session.heard_ms < now_ms - SILENT_MS]
        for name in silent:
            del self._sessions[name]
