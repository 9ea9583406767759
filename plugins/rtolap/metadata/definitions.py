"""Tables, lookups and cubes as they are stored: created, dropped, and of cubes some settings changed.

What stored rows depend on never changes; see `model.evolution.cube_changes`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from rtolap.base.errors import NotFound, Refused
from rtolap.metadata import codec, paths
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import ChangeLog, CubeControl
from rtolap.metadata.requests import Note, remove_all
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Operation, Put, Versioned
from rtolap.metadata.updates import Read, read, read_each, retried, standing
from rtolap.model.cube import Cube, Schema
from rtolap.model.evolution.revisions import numbered, revision_name
from rtolap.model.table import Lookup, Table

S = TypeVar("S", bound=msgspec.Struct)


DELETE_BATCH = 200  # keeps one transaction well below ZooKeeper's 1 MB


class Definitions:
    """Creating what exists with an equal definition changes nothing, so that requests can be repeated."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def tables(self) -> tuple[str, ...]:
        return self.store.children(paths.TABLES)

    def table(self, name: str) -> Table:
        return standing(self.store, paths.table(name), Table, f"table {name}")[0]

    def create_table(self, table: Table) -> None:
        self._create(paths.table(table.name), table, f"table {table.name}")

    def drop_table(self, name: str, note: Note | None = None) -> None:
        """Drop it. `note` is committed with it."""
        users = [cube for cube in self.cubes() if self.cube(cube).table == name]
        if users:
            raise Refused(
                f"table {name} cannot be dropped", found=f"cubes {', '.join(users)}", action="drop them first"
            )
        self._drop(paths.table(name), Table, f"table {name}", note)

    def lookups(self) -> tuple[str, ...]:
        return self.store.children(paths.LOOKUPS)

    def lookup(self, name: str) -> Lookup:
        return standing(self.store, paths.lookup(name), Lookup, f"lookup {name}")[0]

    def create_lookup(self, lookup: Lookup) -> None:
        self._create(paths.lookup(lookup.name), lookup, f"lookup {lookup.name}")

    def drop_lookup(self, name: str, note: Note | None = None) -> None:
        """Drop it. `note` is committed with it."""
        self._drop(paths.lookup(name), Lookup, f"lookup {name}", note)

    def cubes(self) -> tuple[str, ...]:
        """Return the names of all cubes that are there, whether or not their definitions can be read."""
        nodes = read_each(
            self.store.children(paths.CUBES), lambda name: self.store.get(paths.cube_definition(name))
        )
        return tuple(sorted({*nodes.found, *nodes.unreadable}))

    def cube_definitions(self) -> Read[Cube]:
        return read_each(self.store.children(paths.CUBES), self._definition)

    def cube(self, name: str) -> Cube:
        return standing(self.store, paths.cube_definition(name), Cube, f"cube {name}")[0]

    def schema(self, cube: str) -> Schema:
        definition = self.cube(cube)
        return Schema(self.table(definition.table), definition)

    def _definition(self, name: str) -> Cube | None:
        return read(self.store, paths.cube_definition(name), Cube)

    def revisions(self, name: str) -> tuple[Cube, ...]:
        """Return a cube and the revisions that follow it, oldest first.

        The first of them may have aged out and be gone: then those that stand are found by its name. Raises
        NotFound where there is none.
        """
        own = self._definition(name)
        if own is not None and own.revision is None:
            return (own,)
        if own is not None and own.revision is not None:
            return (own, *self._numbered(own.revision.of, own.revision.number + 1))
        standing = self._numbered(name, 1)
        if not standing:
            raise NotFound(f"cube {name} does not exist")
        return standing

    def revision_before(self, cube: Cube) -> Cube | None:
        """Return the revision before one that follows another, if it stands."""
        assert cube.revision is not None, "it follows another"
        before = None
        for each in self.revisions(cube.revision.of):
            if each.revision is not None and each.revision.number < cube.revision.number:
                before = each
        return before

    def standing_revision(self, name: str) -> str:
        """Return the name, or that of the oldest revision that stands where it is one that has aged out.

        Raises NotFound where there is none.
        """
        if self._definition(name) is not None:
            return name
        of, number = numbered(name)
        later = self._numbered(name, 1) or (self._numbered(of, number) if number > 1 else ())
        if not later:
            raise NotFound(f"cube {name} does not exist")
        return later[0].name

    def _numbered(self, of: str, first: int) -> tuple[Cube, ...]:
        """Return the revisions of a series that have this number or a later one, oldest first."""
        named = map(numbered, self.store.children(paths.CUBES))
        numbers = [number for each, number in named if each == of and number > 1]
        if first <= 1:
            numbers.append(1)
        found = []
        for number in sorted(number for number in numbers if number >= first):
            each = self._definition(revision_name(of, number))
            if each is not None and each.revision is not None and each.revision.of == of:
                found.append(each)
        return tuple(found)

    def follow_cube(
        self,
        ended: Cube,
        following: Cube,
        control: CubeControl,
        *,
        definition: Versioned,
        changes: Versioned,
        assigned: Versioned,
    ) -> None:
        """Make the revision that follows the newest one, and end that one, in one commit.

        Args:
            control: the new revision's.
            definition, changes, assigned: definition, change log and control of the newest one, as they were
                read: nothing of it has changed since, no segment and no assignment.

        Raises CommitConflict where one of them has changed, or the new name is taken.
        """
        self.store.commit(
            [
                Put(paths.cube_definition(ended.name), codec.encode(ended), definition.version),
                Check(paths.cube_changes(ended.name), changes.version),
                Check(paths.cube_control(ended.name), assigned.version),
                Create(paths.cube_definition(following.name), codec.encode(following)),
                Create(paths.cube_control(following.name), codec.encode(control)),
                Create(paths.cube_changes(following.name), codec.encode(ChangeLog(cube_id=uuid.uuid4().hex))),
            ]
        )

    @retried
    def change_table(self, before: Table, after: Table) -> None:
        """Put one definition of a table in the place of the other. What it may change is the caller's to
        check. Raises Refused where it has neither of the two."""
        path = paths.table(after.name)
        node = self.store.get(path)
        present = None if node is None else codec.decode(node.data, Table, path)
        if present == after:
            return
        if node is None or present != before:
            raise Refused(f"table {after.name} was changed by somebody else", action="look, and repeat")
        self.store.commit([Put(path, codec.encode(after), node.version)])

    @retried
    def create_cube(self, cube: Cube, *, generation_base: int = 0) -> None:
        """Create definition, control and change log in one commit, so that no reader meets a half-made cube.

        `generation_base`: see `records.CubeControl`.
        """
        nodes: list[tuple[str, msgspec.Struct]] = [
            (paths.cube_definition(cube.name), cube),
            (paths.cube_control(cube.name), CubeControl(generation_base=generation_base)),
            (paths.cube_changes(cube.name), ChangeLog(cube_id=uuid.uuid4().hex)),
        ]
        if self._same(paths.cube_definition(cube.name), cube, f"cube {cube.name}"):
            return
        self.store.commit([Create(path, codec.encode(record)) for path, record in nodes])

    @retried
    def change_cube(self, before: Cube, after: Cube, cube_id: str) -> None:
        """Put one definition of this creation of a cube in the place of the other, in one commit. What it may
        change is the caller's to check. Raises NotFound where the creation is gone, and Refused where it has
        neither of the two."""
        path, changes = paths.cube_definition(after.name), paths.cube_changes(after.name)
        node, log = self.store.get(path), self.store.get(changes)
        if node is None or log is None or codec.decode(log.data, ChangeLog, changes).cube_id != cube_id:
            raise NotFound(f"cube {after.name} was dropped by somebody else", expected=f"cube id {cube_id}")
        present = codec.decode(node.data, Cube, path)
        if present == after:
            return  # an attempt whose answer was lost
        if present != before:
            raise Refused(
                f"cube {after.name} was changed by somebody else meanwhile",
                action="look at it, and repeat",
            )
        self.store.commit([Put(path, codec.encode(after), node.version), Check(changes, log.version)])

    def check_droppable(self, name: str) -> None:
        """Raise Refused for a cube that is enabled or published, and NotFound without it."""
        self.cube(name)
        published = sorted(Publications(self.store).of_cube(name))
        if published:
            raise Refused(
                f"cube {name} cannot be dropped",
                found=f"publications {', '.join(published)}, whose snapshots name its files",
                action=f"`rtolap publish drop {published[0]}` first",
            )
        control = read(self.store, paths.cube_control(name), CubeControl)
        if control is not None and control.enabled:
            raise Refused(
                f"cube {name} is enabled",
                action=f"disable it before it is dropped: `rtolap drop {name} --disable`",
            )

    def drop_cube(self, name: str, cube_id: str, note: Note | None = None) -> None:
        """Drop this creation of a cube. The records go first and the definition last, with the `note`: a
        crash leaves a cube that can be dropped again. Raises NotFound where the creation is gone, even if
        another one has its name."""
        self.check_droppable(name)
        changes = paths.cube_changes(name)

        def standing() -> Versioned | None:
            node = self.store.get(changes)
            same = node is not None and codec.decode(node.data, ChangeLog, changes).cube_id == cube_id
            return node if same else None

        def stands() -> tuple[Operation, ...]:
            node = standing()
            if node is None:
                raise NotFound(f"cube {name} was dropped by somebody else", expected=f"cube id {cube_id}")
            return (Check(changes, node.version),)

        @retried
        def remove_rest() -> None:
            node = standing()
            if node is None or (note is not None and note.stands()):
                return  # an attempt whose answer was lost has done it, or another request
            last = (paths.frontier, paths.cube_watermark, paths.cube_control, paths.cube_definition)
            rest = [path for path in (build(name) for build in last) if self.store.get(path) is not None]
            removed = [Delete(changes, node.version), *(Delete(path) for path in (*rest, paths.cube(name)))]
            self.store.commit([*removed, *(() if note is None else note.operations())])

        for below in (paths.segments, paths.closing, paths.history, paths.replay_from_all):
            self._remove_below(below(name), stands)
        remove_rest()

    @retried
    def _remove_below(self, parent: str, stands: Callable[[], Sequence[Operation]]) -> None:
        names = self.store.children(parent)
        for at in range(0, len(names), DELETE_BATCH):
            batch: list[Operation] = [Delete(f"{parent}/{name}") for name in names[at : at + DELETE_BATCH]]
            self.store.commit([*stands(), *batch])
        if self.store.get(parent) is not None:
            self.store.commit([*stands(), Delete(parent)])

    def _same(self, path: str, record: S, subject: str) -> bool:
        """Return True if it is there already. Raises Refused if it is there and different."""
        present = read(self.store, path, type(record))
        if present is not None and present != record:
            raise Refused(
                f"{subject} exists with another definition",
                action="`rtolap alter` changes a running cube; or drop it first, or choose another name",
            )
        return present is not None

    @retried
    def _create(self, path: str, record: S, subject: str) -> None:
        if not self._same(path, record, subject):
            self.store.commit([Create(path, codec.encode(record))])

    def _drop(self, path: str, kind: type[S], subject: str, note: Note | None) -> None:
        standing(self.store, path, kind, subject)
        remove_all(self.store, lambda: [path], note)
