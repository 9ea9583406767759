"""Publications of cubes: what is declared, which versions their snapshots may name, how far they are.

The publisher writes `PublicationHolds` before a snapshot names a version, and takes a version out of it after
the last snapshot that names it has expired. Whoever deletes files of history reads the segments' records
first and the holds afterwards. The publisher writes the holds first and reads the records afterwards. So one
of them sees the other: a file that a snapshot names is never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from rtolap.base.errors import NotFound, NotYet, Refused
from rtolap.metadata import codec, paths
from rtolap.metadata.requests import remove_all
from rtolap.metadata.store import Check, Create, MetadataStore, Operation
from rtolap.metadata.updates import read, read_each, replace, retried, update
from rtolap.model.publication import Publication
from rtolap.model.segment import SegmentRange

_ERROR_CHARS = 2_000
RANGES_MAX = 2_000  # some 80 kB: a ZooKeeper node takes 1 MB


class PublicationDeclaration(msgspec.Struct, frozen=True):
    """A publication as it is declared.

    Attributes:
        dropping: a command removes it; no publisher works on it any more.
    """

    publication: Publication
    dropping: bool = False


class HeldRange(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Segments from `start_ms` to `end_ms` of which a snapshot may name files of this version."""

    version: int
    start_ms: int
    end_ms: int


class PublicationHolds(msgspec.Struct, frozen=True):
    """The versions whose files stay, since snapshots name them or are about to.

    Attributes:
        cube_id: the creation of the cube that the versions are of.
        released: a person has given the holds up: files that snapshots name may be gone.
        expire_all: snapshots before the next one may name files that are gone; they expire at once.
    """

    cube_id: str = ""
    ranges: tuple[HeldRange, ...] = ()
    released: bool = False
    expire_all: bool = False

    def hold(self, segment: SegmentRange, version: int) -> bool:
        return not self.released and among(self.ranges, segment, version)


class PublicationStatus(msgspec.Struct, frozen=True):
    """The publisher's own word, for people.

    Attributes:
        looked_ms: the end of the last look that succeeded; None before the first.
        cube_id: the creation of the cube that was published.
        newest: the versions that the newest snapshot holds, those without a row included.
        snapshots: number of snapshots that the table has.
        metadata_bytes: size of the newest metadata file.
        error: why the last look failed; None if it succeeded.
        failures: looks that failed one after the other.
    """

    publisher: str = ""
    looked_ms: int | None = None
    cube_id: str = ""
    newest: tuple[HeldRange, ...] = ()
    snapshot_id: int | None = None
    snapshots: int = 0
    metadata_bytes: int = 0
    error: str | None = None
    failures: int = 0


def among(ranges: Iterable[HeldRange], segment: SegmentRange, version: int) -> bool:
    return any(
        each.version == version and each.start_ms <= segment.start_ms and segment.end_ms <= each.end_ms
        for each in ranges
    )


def held_ranges(ranges: Iterable[HeldRange]) -> tuple[HeldRange, ...]:
    """Return few ranges that hold all of these: segments of a version beside each other make one range.

    More than RANGES_MAX are joined over gaps, the smallest first. The ranges then hold more than was asked
    for, never less.
    """
    joined = _joined(sorted(set(ranges)), 0)
    if len(joined) <= RANGES_MAX:
        return tuple(joined)
    gaps = sorted(
        after.start_ms - before.end_ms
        for before, after in pairwise(joined)
        if before.version == after.version
    )
    surplus = len(joined) - RANGES_MAX
    return tuple(_joined(joined, gaps[min(surplus, len(gaps)) - 1] if gaps else 0))


def _joined(ranges: Sequence[HeldRange], gap_ms: int) -> list[HeldRange]:
    joined: list[HeldRange] = []
    for each in ranges:
        last = joined[-1] if joined else None
        if last is not None and last.version == each.version and each.start_ms - last.end_ms <= gap_ms:
            joined[-1] = HeldRange(last.version, last.start_ms, max(last.end_ms, each.end_ms))
        else:
            joined.append(each)
    return joined


class Publications:
    """The records of all publications of a cluster."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def declarations(self) -> dict[str, PublicationDeclaration]:
        """Return them by name, without those that are forged or damaged."""
        return read_each(self._store.children(paths.PUBLICATIONS), self._declaration).found

    def of_cube(self, cube: str) -> dict[str, PublicationDeclaration]:
        """Return those of a cube. Raises Corrupted while the declaration of any cannot be read: it may be
        one of the cube's, and what it names must not be deleted."""
        declared, unreadable = read_each(self._store.children(paths.PUBLICATIONS), self._declaration)
        for error in unreadable.values():
            raise error
        return {name: each for name, each in declared.items() if each.publication.cube == cube}

    def declaration(self, name: str) -> PublicationDeclaration:
        found = self._declaration(name)
        if found is None:
            raise NotFound(
                f"no publication is named {name!r}", action="`rtolap publish list` shows those there are"
            )
        return found

    @retried
    def declare(self, publication: Publication) -> None:
        """Declare it, or change how it is batched, expires and is reached.

        Raises Refused where another cube, cuboid or table would be published under the name.
        """
        path = paths.publication_definition(publication.name)
        node = self._store.get(path)
        declared = PublicationDeclaration(publication)
        # The cube's record, so that a cube that is dropped meanwhile leaves no publication behind.
        control = self._store.get(paths.cube_control(publication.cube))
        if control is None:
            raise NotFound(f"cube {publication.cube} does not exist", action="create it first")
        stands = Check(paths.cube_control(publication.cube), -1)
        if node is None:
            self._store.commit([Create(path, codec.encode(declared)), stands])
            return
        before = codec.decode(node.data, PublicationDeclaration, path)
        if before == declared:
            return
        same = (before.publication.cube, before.publication.cuboid, before.publication.table)
        if before.dropping or same != (publication.cube, publication.cuboid, publication.table):
            raise Refused(
                f"publication {publication.name} exists with another cube, cuboid or table",
                found=f"{same[0]} as {same[2]}{', which is being dropped' if before.dropping else ''}",
                action=f"drop it first: `rtolap publish drop {publication.name}`",
            )
        update(self._store, path, PublicationDeclaration, lambda _: declared, lambda: (stands,))

    def start_drop(self, name: str) -> Publication:
        """Mark it as being dropped: from here on no publisher commits its holds. Returns what it was."""
        path = paths.publication_definition(name)

        def dropped(before: PublicationDeclaration | None) -> PublicationDeclaration:
            if before is None:
                raise NotFound(f"no publication is named {name!r}")
            return msgspec.structs.replace(before, dropping=True)

        return update(self._store, path, PublicationDeclaration, dropped).publication

    def end_drop(self, name: str) -> None:
        """Remove all of it: what its snapshots name may be deleted."""
        nodes = (paths.publication_status, paths.publication_holds, paths.publication_definition)
        remove_all(self._store, lambda: [node(name) for node in nodes])

    def holds(self, name: str) -> PublicationHolds:
        return read(self._store, paths.publication_holds(name), PublicationHolds) or PublicationHolds()

    def write_holds(
        self,
        name: str,
        holds: PublicationHolds,
        before: PublicationHolds,
        require: Callable[[], Sequence[Operation]] = tuple,
    ) -> None:
        """Replace `before`, if `require` holds.

        Raises NotYet where others than these holds stand, CommitConflict where `require` does not hold.
        """

        def changed(standing: PublicationHolds | None) -> PublicationHolds:
            if (standing or PublicationHolds()) not in (before, holds):
                raise NotYet(f"holds of publication {name} were changed meanwhile", action="look again")
            return holds

        update(self._store, paths.publication_holds(name), PublicationHolds, changed, require)

    def release(self, name: str) -> None:
        """Give the holds up, whatever snapshots name. The publisher's next look makes a snapshot of what is
        there, and lets all others expire."""
        self.declaration(name)
        update(
            self._store,
            paths.publication_holds(name),
            PublicationHolds,
            lambda before: msgspec.structs.replace(before or PublicationHolds(), released=True),
        )

    def status(self, name: str) -> PublicationStatus:
        return read(self._store, paths.publication_status(name), PublicationStatus) or PublicationStatus()

    def write_status(self, name: str, status: PublicationStatus) -> None:
        replace(self._store, paths.publication_status(name), status)

    def note_failure(self, name: str, publisher: str, error: str, failures: int) -> None:
        """Write why a look failed; what the last one that succeeded has found stays."""
        before = self.status(name)
        failed = msgspec.structs.replace(
            before, publisher=publisher, error=error[:_ERROR_CHARS], failures=failures
        )
        self.write_status(name, failed)

    def _declaration(self, name: str) -> PublicationDeclaration | None:
        return read(self._store, paths.publication_definition(name), PublicationDeclaration)


def holders(
    holds: Mapping[str, PublicationHolds], cube_id: str, segment: SegmentRange, version: int
) -> list[str]:
    """Return names of the publications whose snapshots may name files of the version."""
    return [name for name, each in holds.items() if each.cube_id == cube_id and each.hold(segment, version)]
