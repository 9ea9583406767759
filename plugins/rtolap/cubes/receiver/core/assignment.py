"""The partitions that one cube reads here, and the offsets from which it does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from rtolap.base.clock import Clock
from rtolap.cubes.receiver.core.checkpointing import Checkpoints
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.states import ConsumerEvent, ConsumerLifecycle, ConsumerState
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.model.completeness import EventLoss, behind_losses
from rtolap.model.offsets import Offsets


@dataclass(eq=False)
class FollowedAssignment:
    """The partitions that a cube reads here, and their start offsets. Only the core thread uses them."""

    consumer: StreamConsumer
    life: ConsumerLifecycle
    progress: ConsumerProgress
    checkpoints: Checkpoints
    clock: Clock
    _assigned: frozenset[int] = field(default_factory=frozenset, init=False)
    _cuts: Offsets = field(default_factory=dict, init=False)

    def forget(self) -> None:
        """Make the next look assign again, from the positions that the state has then."""
        self._assigned = frozenset()

    def begin_below(self, cuts: Offsets) -> None:
        """Begin no partition beyond its cut: what history states further on refers to lost records."""
        self._cuts = {**self._cuts, **{p: min(at, self._cuts.get(p, at)) for p, at in cuts.items()}}
        self.forget()

    def follow(
        self,
        state: LocalState,
        owned: frozenset[int],
        start_offsets: Offsets,
        losses: Sequence[EventLoss] = (),
    ) -> LocalState:
        """Return the state with the positions of what is read from now on; the same object if nothing
        changes. `losses`: offsets that are passed over.
        """
        checkpoints = self.checkpoints
        known = {**(checkpoints.known or {}), **state.positions}
        self._cuts = {p: at for p, at in self._cuts.items() if p in owned}
        start_offsets = {p: min(at, self._cuts.get(p, at)) for p, at in start_offsets.items()}
        ready = owned & {*known, *_startable(state, owned - set(known), start_offsets)}
        if ready == self._assigned and not (ready and self.life.state is ConsumerState.STOPPED):
            return state
        # Positions known here go on where they are; history may be further than a checkpoint.
        offsets = {
            p: behind_losses(losses, p, max(known.get(p, 0), start_offsets.get(p, 0))) for p in sorted(ready)
        }
        self.consumer.assign(offsets)
        self._assigned = ready
        self.progress.assigned(offsets, self.clock.monotonic_s())
        checkpoints.known = known
        epochs = {p: e for p, e in {**checkpoints.epochs, **state.epochs}.items() if p in known}
        checkpoints.epochs = epochs
        if offsets and self.life.state is ConsumerState.STOPPED:
            self.life.apply(ConsumerEvent.START)
        elif set(offsets) - set(known) and self.life.state is ConsumerState.CONSUMING:
            self.life.apply(ConsumerEvent.START)  # what is behind the log's end is not silent
        elif not offsets and self.life.state is not ConsumerState.STOPPED:
            self.life.apply(ConsumerEvent.STOP)
        return replace(state, positions=offsets, epochs={p: epochs[p] for p in offsets if p in epochs})


def _startable(state: LocalState, fresh: Collection[int], start_offsets: Offsets) -> set[int]:
    """Return the partitions without a position that may start.

    A partition may not start while a table has events of its earlier stay: they would be read twice.
    """
    left_over = {p for table in state.tables() for p in table.ranges} if fresh else set()
    return {p for p in fresh if p in start_offsets and p not in left_over}
