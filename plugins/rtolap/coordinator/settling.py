"""Moves records of settled segments into pages, where an earlier version has left them in nodes of their own.

Their vectors go into a file beside the data first. Each record is moved by one commit, in any order and as
often as it takes: a leader that is killed leaves the rest to the next one, and what was moved stays moved.
"""

from __future__ import annotations

import logging

from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.segment_format.pages import is_settled

log = logging.getLogger(__name__)

SETTLED_MAX = 500  # of one cube in one round: other cubes wait for it


class Settling:
    def __init__(self, metadata: ClusterMetadata, views: Views) -> None:
        self._metadata = metadata
        self._views = views

    def run(self, cube: str) -> int:
        """Move some records. Return how many; 0: none is left. Raises Unavailable, NotFound."""
        left = [record for record in self._views.open(cube).values() if is_settled(record)]
        moved = sum(self._metadata.nodes.settle(cube, record.range) for record in left[:SETTLED_MAX])
        if moved:
            log.info("cube %s: %d of %d records of settled segments are in pages now", cube, moved, len(left))
        return moved
