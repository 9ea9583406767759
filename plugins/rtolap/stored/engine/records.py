"""The state of a tablet, and the records that change it."""

from __future__ import annotations

import msgspec

from rtolap.model.stored.schema import StoredSchema


class FileMeta(msgspec.Struct, frozen=True):
    name: str
    rows: int
    bytes: int


class DeletesFile(msgspec.Struct, frozen=True):
    name: str
    bytes: int


class Rowset(msgspec.Struct, frozen=True):
    """Rows left by the transactions of the versions `first` to `last`; read at versions from `last` on."""

    id: str
    first: int
    last: int
    files: tuple[FileMeta, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class PreparedTxn(msgspec.Struct, frozen=True):
    """`partial`: the files lack columns, which publishing fills."""

    txn: int
    files: tuple[FileMeta, ...]
    partial: bool = False


class TabletState(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is visible, and those down to `floor` can still be read. `rowsets` in order of version.

    `history`: (version, transaction) of the last publishes, newest last; `serial` names the next compaction.
    """

    schema: StoredSchema
    version: int = 0
    floor: int = 0
    rowsets: tuple[Rowset, ...] = ()
    prepared: dict[int, PreparedTxn] = {}
    history: tuple[tuple[int, int], ...] = ()
    deletes: tuple[DeletesFile, ...] = ()
    serial: int = 1


class Checkpoint(msgspec.Struct, frozen=True, tag="checkpoint"):
    state: TabletState


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    prepared: PreparedTxn


class Published(msgspec.Struct, frozen=True, tag="published"):
    """`completed`: what partial files have become."""

    txn: int
    version: int
    deletes: DeletesFile | None
    completed: tuple[FileMeta, ...] | None = None


class Aborted(msgspec.Struct, frozen=True, tag="aborted"):
    txn: int


class Compacted(msgspec.Struct, frozen=True, tag="compacted"):
    """`output` takes the place of `inputs` for versions from `floor` on. `deletes` replaces all deletes."""

    inputs: tuple[str, ...]
    output: Rowset
    floor: int
    deletes: DeletesFile | None


class SchemaChanged(msgspec.Struct, frozen=True, tag="schema"):
    schema: StoredSchema


Record = Checkpoint | Prepared | Published | Aborted | Compacted | SchemaChanged
