"""The check that a log still holds the records that were read of it.

A log that lost its tail and grew again gives the same offsets to other records. What was read is compared
with the log by leader epochs (KIP-320): for each epoch of which records were read, the log must have that
epoch, up to where they were read.

    the log has of the epoch                 then
    records up to where they were read       they are the same ones
    fewer                                    the logs diverge where it ends
    none                                     they diverge behind the epoch before it, or earlier

An epoch that is over and was compared once is not compared again: another cut shows in a later one.

A position may be beyond the last record that was read: behind transaction markers, or where a reader begins.
Which epoch the log has there is asked, so that the position is compared from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from threading import Lock

from rtolap.kafka.interfaces import CutPartition, EpochEnd, LogTruncated
from rtolap.model.leader_epochs import EpochRange, LeaderEpochs, PartitionEpochs, continued

AskEnds = Callable[[Mapping[int, int | None], float], Mapping[int, EpochEnd]]
_NO_POSITIONS: Mapping[int, int] = {}


class TruncationCheck:
    """A check for truncated logs. It is thread-safe. `ask` is `StreamConsumer.epoch_ends`; `action` says what
    a person can do about a cut."""

    def __init__(self, topic: str, ask: AskEnds, *, action: str) -> None:
        self._topic = topic
        self._ask = ask
        self._action = action
        self._lock = Lock()
        self._compared: Mapping[int, tuple[EpochRange, ...]] = {}

    def check(
        self, epochs: PartitionEpochs, positions: Mapping[int, int] = _NO_POSITIONS, timeout_s: float = 5.0
    ) -> PartitionEpochs:
        """Return the epochs of those of `positions` that are beyond what is known of their partition, the
        known ones included. Raises LogTruncated; Unavailable and NotFound where nobody answers."""
        with self._lock:
            compared = self._compared
        walks = {p: _Walk(known, _over(compared.get(p, ()), known.ranges)) for p, known in epochs.items()}
        while under_way := {p: walk for p, walk in walks.items() if walk.index >= walk.last}:
            ends = self._ask({p: walk.epoch for p, walk in under_way.items()}, timeout_s)
            for partition, walk in under_way.items():
                walk.compare(ends.get(partition))
        cuts = [
            CutPartition(partition, max(walk.known.end, positions.get(partition, 0)), walk.diverges)
            for partition, walk in sorted(walks.items())
            if walk.diverges < walk.known.end
        ]
        learned, shorter = self._learn(epochs, positions, {cut.partition for cut in cuts}, timeout_s)
        if cuts or shorter:
            raise LogTruncated(self._topic, sorted([*cuts, *shorter]), action=self._action)
        with self._lock:
            self._compared = {p: walk.known.ranges for p, walk in walks.items()}
        return learned

    def _learn(
        self,
        epochs: PartitionEpochs,
        positions: Mapping[int, int],
        cut: Container[int],
        timeout_s: float,
    ) -> tuple[dict[int, LeaderEpochs], list[CutPartition]]:
        """Return the learned epochs, and the partitions whose log is shorter than the position by now."""
        ends = {p: epochs[p].end if p in epochs else 0 for p in positions}
        requested: dict[int, int | None] = {
            p: None for p, position in positions.items() if position > ends[p] and p not in cut
        }
        newest: dict[int, int] = {}
        learned: dict[int, LeaderEpochs] = {}
        shorter: list[CutPartition] = []
        while requested:
            answers = self._ask(requested, timeout_s)
            further: dict[int, int | None] = {}
            for partition in requested:
                position, answer = positions[partition], answers.get(partition)
                if answer is None:
                    continue
                if answer.end >= position:
                    newest[partition] = answer.epoch
                    if answer.epoch > (epochs[partition].epoch if partition in epochs else 0):
                        further[partition] = answer.epoch - 1  # that one may reach as far
                        continue
                if partition in newest:
                    learned |= continued(_of(epochs, partition), _at(partition, newest[partition], position))
                elif partition in epochs:
                    shorter.append(CutPartition(partition, position, max(answer.end, ends[partition])))
            requested = further
        return learned, shorter


def _of(epochs: PartitionEpochs, partition: int) -> PartitionEpochs:
    return {partition: epochs[partition]} if partition in epochs else {}


def _at(partition: int, epoch: int, position: int) -> PartitionEpochs:
    return {partition: LeaderEpochs((EpochRange(epoch, position - 1, position),))}


class _Walk:
    """The comparison of one partition, from its newest epoch down to the one at `last`."""

    def __init__(self, known: LeaderEpochs, over: int) -> None:
        self.known = known
        self.index = len(known.ranges) - 1
        self.last = min(over, self.index)
        self.diverges = known.end

    @property
    def epoch(self) -> int:
        return self.known.ranges[self.index].epoch

    def compare(self, end_of_epoch: EpochEnd | None) -> None:
        """Compare an epoch's end. `end_of_epoch` is None where the cluster cannot be asked."""
        read = self.known.ranges[self.index]
        if end_of_epoch is not None and end_of_epoch.epoch == read.epoch:
            if end_of_epoch.end < read.end:
                self.diverges = min(self.diverges, end_of_epoch.end)
        elif end_of_epoch is not None:
            # the log has none of this epoch, and may have less of the one before than when that was compared
            before = (
                self.known.ranges[self.index - 1].end if self.index else min(read.start, end_of_epoch.end)
            )
            self.diverges = min(self.diverges, before)
            self.last = max(0, min(self.last, self.index - 1))
        self.index -= 1


def _over(compared: tuple[EpochRange, ...], ranges: tuple[EpochRange, ...]) -> int:
    """Return how many of `ranges`, from the first, were complete when they were compared. The last range is
    not counted: the log may have lost records of it since."""
    count = 0
    for one, other in zip(compared[:-1], ranges, strict=False):
        if one != other:
            break
        count += 1
    return count
