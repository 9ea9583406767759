"""The comparison of what a cube's receiver has read with the logs of its topic.

A log may lose its tail and grow again under the same offsets (see `kafka.truncation`). What is compared:

    positions         with leader epochs, whenever reads are confirmed; on any thread
    segments' vectors once a topic is confirmed, before anything is read

What a cut means to a cube is decided here, too: where history counts nothing that the log has lost, and the
cube declares `truncation: drop`, the receiver reads on from where the logs diverge; otherwise it stops.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rtolap.base.errors import Refused, RtolapError
from rtolap.cubes.receiver.local.cut_logs import counted_beyond, epochs_are_known, known_by_vectors
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import CutPartition, LogTruncated, StreamConsumer
from rtolap.kafka.truncation import TruncationCheck
from rtolap.model.cube import Schema
from rtolap.model.leader_epochs import PartitionEpochs

TRUNCATION_ACTION = (
    "nobody can tell these events from others that may stand at their offsets: `rtolap drop --disable` "
    "this cube and create it again; one declared with `truncation: drop` reads on by itself where no history "
    "counts them"
)
_NAMES_MAX = 5  # of segments in a reason


class LogComparison:
    """The comparison of one cube's reads with the logs. Its methods take the state they compare."""

    def __init__(self, schema: Schema, consumer: StreamConsumer) -> None:
        self._schema = schema
        self._consumer = consumer
        self._check = self._new_check()
        self._learned: tuple[PartitionEpochs, PartitionEpochs] | None = None  # what was known, and more of it

    def compare(self, state: LocalState, timeout_s: float) -> None:
        """Compare the positions with the log, on any thread. Raises LogTruncated."""
        learned = self._check.check(state.epochs, state.positions, timeout_s)
        if learned:
            self._learned = (state.epochs, learned)

    def with_learned(self, state: LocalState, valid: Collection[int]) -> LocalState:
        """Return the state with the epochs of positions behind its last records, where it has read no more
        since.

        Args:
            state: the state of now.
            valid: partitions whose reads count.
        """
        if self._learned is None:
            return state
        (before, learned), self._learned = self._learned, None
        fitting = {
            p: known for p, known in learned.items() if state.epochs.get(p) == before.get(p) and p in valid
        }
        return replace(state, epochs={**state.epochs, **fitting}) if fitting else state

    def compare_vectors(self, view: CubeView, partitions: Collection[int]) -> None:
        """Raise LogTruncated where a log has lost what segments' vectors count."""
        self._new_check().check(known_by_vectors(view.records, view.settled.frontier, partitions))

    def refusal(self, error: LogTruncated, view: CubeView) -> RtolapError | None:
        """Return the error for which the cube stops; None where it may drop what the log has lost.

        Raises Unavailable where the vectors have to be compared with the log and nobody answers.
        """
        counted = counted_beyond(view.records, view.settled, error.cuts, view.control.horizon_ms)
        if counted and not self._has_vectors(view, error.cuts):
            return _of_history(error, counted)
        return error if self._schema.cube.truncation != "drop" else None

    def _has_vectors(self, view: CubeView, cuts: Collection[CutPartition]) -> bool:
        """Return whether the log holds what the vectors count: they are of the log as it is after the cut.

        This receiver had settled the cut before, or another one has, and it began again with what it had read
        of the log before.
        """
        if not epochs_are_known(view.records, view.settled.frontier, cuts):
            return False
        try:
            self.compare_vectors(view, {cut.partition for cut in cuts})
        except LogTruncated:
            return False
        return True

    def _new_check(self) -> TruncationCheck:
        consumer = self._consumer
        return TruncationCheck(self._schema.table.topic, consumer.epoch_ends, action=TRUNCATION_ACTION)


def _of_history(error: LogTruncated, segments: list[str]) -> Refused:
    """Return the error with what forbids that anything is dropped."""
    more = f" and {len(segments) - _NAMES_MAX} more" if len(segments) > _NAMES_MAX else ""
    return Refused(
        error.message,
        expected=error.expected,
        found=f"{error.found}; segments {', '.join(segments[:_NAMES_MAX])}{more} count offsets beyond that",
        action=error.action,
    )
