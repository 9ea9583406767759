"""The cuboid of each unit of history that answers a read. Reads of the same columns share what was chosen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from rtolap.base.errors import Corrupted
from rtolap.base.ids import CarryingPool
from rtolap.cubes.format.manifest import CuboidEntry
from rtolap.metadata.merging.units import HistoryUnit
from rtolap.model.cube import smallest_covering
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.byte_bounded import ByteBounded
from rtolap.query.cubes.history_files import HistoryFiles
from rtolap.query.cubes.history_rows import HistoryRows
from rtolap.query.plan import ReadStats

SEGMENTS_AT_ONCE = 8  # of one statement, so that a long one leaves threads to others
READS_MAX = 32  # of all statements
_CHOICE_BYTES_MAX = 16 << 20
_CHOICE_BYTES = 400

S = TypeVar("S")
T = TypeVar("T")


class ScannedVersion(NamedTuple):
    """A unit of history and the cuboid that a read needs of it."""

    unit: HistoryUnit
    location: str
    cuboid: CuboidEntry


class Choice(NamedTuple):
    """The files that a unit is read from.

    Attributes:
        keys: the names of the files in memory.
    """

    location: str
    cuboid: CuboidEntry
    keys: tuple[str, ...]

    @classmethod
    def of(cls, location: str, cuboid: CuboidEntry) -> Choice:
        return cls(location, cuboid, tuple(f"{location}/{file.name}" for file in cuboid.files))


class Beside:
    """Calls for several segments: beside each other where the store is remote, one by one on a disk, which
    answers before another thread has begun."""

    def __init__(self, *, is_remote: bool) -> None:
        self._threads = CarryingPool(READS_MAX, thread_name_prefix="history-read") if is_remote else None

    @property
    def is_alone(self) -> bool:
        return self._threads is None

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def each(self, call: Callable[[S], T], of: Sequence[S], cancellation: Cancellation) -> Iterator[T]:
        """Yield the result of `call` for each, in order."""
        if self._threads is None or len(of) < 2:
            for one in of:
                cancellation.check()
                yield call(one)
            return
        left = iter(of)
        running = deque(self._threads.submit(call, one) for one in islice(left, SEGMENTS_AT_ONCE))
        try:
            while running:
                cancellation.check()
                result = running.popleft().result()
                running.extend(self._threads.submit(call, one) for one in islice(left, 1))
                yield result
        finally:
            for future in running:
                future.cancel()


class Choices:
    """The choices of all reads. Thread-safe."""

    def __init__(self, files: HistoryFiles, beside: Beside) -> None:
        self._files = files
        self._beside = beside
        self._choices: ByteBounded[dict[str, Choice]] = ByteBounded(_CHOICE_BYTES_MAX)

    def known(self, rows: HistoryRows) -> dict[str, Choice]:
        """Return what reads of the same dimensions have chosen, by the unit's key."""
        return dict(self._choices.find(rows.choice_key) or {})

    def versions(
        self, rows: HistoryRows, units: Sequence[HistoryUnit], cancellation: Cancellation
    ) -> list[ScannedVersion]:
        """Return each unit with the cuboid that answers the read.

        Raises Corrupted for a manifest that is missing or damaged, and Unavailable.
        """
        choices = self.known(rows)

        def choose(unit: HistoryUnit) -> ScannedVersion:
            choice = self._choose(rows, unit, choices)
            return ScannedVersion(unit, choice.location, choice.cuboid)

        before = len(choices)
        versions = list(self._beside.each(choose, units, cancellation))
        if len(choices) > before:
            self._choices.keep(rows.choice_key, choices, _CHOICE_BYTES * len(choices))
        return versions

    def count_files(self, rows: HistoryRows, units: Sequence[HistoryUnit], stats: ReadStats) -> None:
        """Count the files of the units where they would be read."""
        choices = self.known(rows)
        for unit in units:
            choice = self._choose(rows, unit, choices)
            self._files.count(choice.location, choice.cuboid, stats)

    def _choose(self, rows: HistoryRows, unit: HistoryUnit, choices: dict[str, Choice]) -> Choice:
        """Return the choice for the unit from `choices`, or add one that the manifest gives."""
        known = choices.get(unit.key)
        if known is None:
            cuboids = self._files.manifest(unit).cuboids
            known = Choice.of(unit.location, choose_cuboid(unit, cuboids, rows.needed))
            choices[unit.key] = known
        return known


def choose_cuboid(unit: HistoryUnit, cuboids: Sequence[CuboidEntry], needed: Collection[str]) -> CuboidEntry:
    """Return the one with the fewest rows that holds every dimension that is read or filtered by.

    Of a unit that has its base only, that is the one with all dimensions.
    """
    usable = cuboids
    if unit.is_base_only and cuboids:
        usable = [max(cuboids, key=lambda cuboid: len(cuboid.dimensions))]
    cuboid = smallest_covering(usable, needed)
    if cuboid is None:
        raise Corrupted(
            f"history of {unit.title} has no fitting cuboid",
            expected=f"one with {', '.join(sorted(needed))}",
            found=", ".join(cuboid.name for cuboid in usable) or "none",
            action="queue the segment to be built again",
        )
    return cuboid
