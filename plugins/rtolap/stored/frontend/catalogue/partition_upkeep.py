"""Partitions in time: made ahead of it, dropped behind it. One round after another, by whoever is master."""

from __future__ import annotations

import logging

from rtolap.base.errors import NotLeader, RtolapError
from rtolap.stored.frontend.catalogue.tables import Catalogue

log = logging.getLogger(__name__)


class PartitionUpkeep:
    """One table that cannot be kept up hinders no other; a master that is none any more stops."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def run_once(self) -> tuple[int, int]:
        """Return (partitions made, partitions dropped) and send the nodes their pending tasks. Raises
        NotLeader.
        """
        created = dropped = 0
        for table in self._catalogue.tables():
            if table.definition.partitions is None:
                continue
            try:
                created += self._catalogue.partitions.create_ahead(table.db, table.name)
                dropped += self._catalogue.partitions.drop_old(table.db, table.name)
            except NotLeader:
                raise
            except RtolapError as error:  # tried again with the next round
                log.warning("the partitions of %s are not kept up: %s", table.qualified_name, error)
        self._catalogue.settle()
        return created, dropped
