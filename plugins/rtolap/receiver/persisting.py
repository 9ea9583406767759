"""When a core's state is written to disk, and what it means for the consumer that it cannot be."""

from __future__ import annotations

import logging

from rtolap.base.errors import RtolapError
from rtolap.receiver.checkpointing import Checkpoints
from rtolap.receiver.dead_letters import DeadLetterBox
from rtolap.receiver.limits import Limits
from rtolap.receiver.progress import Progress
from rtolap.receiver.tables import LocalState
from rtolap.stream.consumer import TopicMissing, TopicRecreated

log = logging.getLogger(__name__)


class Persisting:
    """Of one cube; used by the core thread only."""

    def __init__(self, cube: str, checkpoints: Checkpoints, letters: DeadLetterBox, limits: Limits) -> None:
        self._cube = cube
        self._checkpoints = checkpoints
        self._letters = letters
        self._limits = limits

    def look_at_letters(self) -> None:
        """Letters that Kafka will not take stop the consumer now, not at the next checkpoint."""
        self._letters.poll()
        if not self._limits.flush_failing and (trouble := self._letters.trouble) is not None:
            self._limits.flush_failed(trouble)

    def again_if_due(self, state: LocalState, progress: Progress) -> LocalState:
        """Another try, a while after one has failed. Raises TopicMissing, TopicRecreated."""
        return self._attempt(state, progress) if self._limits.flush_due else state

    def if_due(self, state: LocalState, progress: Progress) -> LocalState:
        """When rows, bytes or time ask for it. Raises TopicMissing, TopicRecreated."""
        return self._attempt(state, progress) if self._checkpoints.due(state) else state

    def write(self, state: LocalState, progress: Progress) -> LocalState:
        """The state with its tables in files; the same one where the checkpoint on disk still stands for
        everything. Raises what `Checkpoints.write` raises; state and checkpoint then stay as they were."""
        if self._checkpoints.known is None:
            return state
        written = self._checkpoints.write(state, progress)
        self._limits.flush_worked()
        return written

    def _attempt(self, state: LocalState, progress: Progress) -> LocalState:
        try:
            return self.write(state, progress)
        except (TopicMissing, TopicRecreated):
            raise  # no checkpoint will ever work: the consumer fails
        except (OSError, RtolapError) as error:
            log.error("cube %s: checkpoint failed: %s", self._cube, error)
            self._limits.flush_failed(error)
            return state
