"""A receiver that has failed at a cube lets another one lead its replica set.

Whoever leads closes and uploads for its replica set: one that no longer reads a cube holds up that cube's
history, though a follower could go on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from rtolap.metadata.store import Election

log = logging.getLogger(__name__)


class GivingWay:
    """Once for each failure: where the next one has failed too, leadership comes back and stays."""

    def __init__(self, election: Election) -> None:
        self._election = election
        self._given: frozenset[str] = frozenset()  # failed cubes for which it gave way

    def look(self, failed: Collection[str]) -> None:
        """`failed`: cubes that this receiver no longer reads."""
        self._given = self._given.intersection(failed)
        if not self._election.is_leader() or self._given.issuperset(failed):
            return
        if self._election.step_back():
            log.warning("another receiver may lead: this one has failed at %s", ", ".join(sorted(failed)))
            self._given = frozenset(failed)
