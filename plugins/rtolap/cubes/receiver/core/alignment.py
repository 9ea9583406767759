"""The alignment of a cube's local state with the records of its segments."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from rtolap.base.errors import Unavailable
from rtolap.cubes.receiver.local.realign import aligned
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.views import CubeView
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Schema

log = logging.getLogger(__name__)


class Alignment:
    """The view that a local state is aligned with. Only the core thread uses it."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._records: Mapping[int, SegmentRecord] | None = None  # compared by identity
        self._basis: tuple[int | None, int] = (None, 0)
        self._keeps_earlier = False  # because vectors cannot be read

    def forget(self) -> None:
        """Make the next look align again, whatever the view."""
        self._records = None

    def is_of(self, view: CubeView) -> bool:
        """Return whether the state is aligned with what this view says."""
        return view.records is self._records and _basis(view) == self._basis

    def align(self, state: LocalState, view: CubeView, valid: Collection[int]) -> LocalState | None:
        """Return the state without what history has taken over.

        None: the vectors of this view cannot be read, and the state stays as an earlier view has it.

        Args:
            state: the state of now.
            view: what the records say.
            valid: partitions whose rows count.

        Raises:
            Unavailable: vectors cannot be read, and no earlier view has the same assignment and horizon.
        """
        try:
            done = aligned(self._schema, state, view, valid)
        except Unavailable as error:
            if self._records is None or _basis(view) != self._basis:
                raise
            # As long as vectors cannot be read, an earlier view is as good: statements that know more wait.
            if not self._keeps_earlier:
                log.warning("cube %s follows an earlier view for now: %s", self._schema.cube.name, error)
            self._keeps_earlier = True
            return None
        self._keeps_earlier = False
        self._records, self._basis = view.records, _basis(view)
        return done


def _basis(view: CubeView) -> tuple[int | None, int]:
    return (view.control.horizon_ms, view.control.assignment_epoch)
