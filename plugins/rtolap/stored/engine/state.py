"""The state of a tablet, and its changes by records. Pure: recovery applies the same functions as running.

begin ──prepare──▶ PREPARED ──publish──▶ VISIBLE        a transaction, in one tablet
                      │
                      └─────abort──────▶ gone
"""

from __future__ import annotations

import msgspec

from rtolap.base.errors import DefinitionError, NotFound, NotYet, Refused
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.steps import published_rowset

HISTORY_MAX = 4096  # publishes that can be repeated without harm; a master repeats its last few


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
    """A transaction that is prepared. With `partial`, its files lack columns, which publishing fills."""

    txn: int
    files: tuple[FileMeta, ...]
    partial: bool = False


class TabletState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a tablet.

    Attributes:
        version: the visible version.
        floor: the lowest version that can still be read.
        rowsets: in the order of their versions.
        prepared: the prepared transactions, by id.
        history: version and transaction of the last publishes, the newest last.
        serial: the number of the next compaction; it names its files.
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
    """A transaction that was published. `completed` has the files that partial ones have become."""

    txn: int
    version: int
    deletes: DeletesFile | None
    completed: tuple[FileMeta, ...] | None = None


class Aborted(msgspec.Struct, frozen=True, tag="aborted"):
    txn: int


class Compacted(msgspec.Struct, frozen=True, tag="compacted"):
    """The result of a compaction.

    Attributes:
        output: replaces `inputs` for versions from `floor` on.
        deletes: replaces all deletes.
    """

    inputs: tuple[str, ...]
    output: Rowset
    floor: int
    deletes: DeletesFile | None


class SchemaChanged(msgspec.Struct, frozen=True, tag="schema"):
    schema: StoredSchema


Record = Checkpoint | Prepared | Published | Aborted | Compacted | SchemaChanged


def apply(state: TabletState, record: Record) -> TabletState:
    """Return the state after a record that was decided on."""
    replace = msgspec.structs.replace
    match record:
        case Checkpoint(state=whole):
            return whole
        case Prepared(prepared=prepared):
            return replace(state, prepared={**state.prepared, prepared.txn: prepared})
        case Aborted(txn=txn):
            return replace(state, prepared=_without(state, txn))
        case SchemaChanged(schema=schema):
            return replace(state, schema=schema)
        case Published(txn=txn, version=version, deletes=deletes, completed=completed):
            files = state.prepared[txn].files if completed is None else completed
            added = (Rowset(published_rowset(version), version, version, files),) if files else ()
            return replace(
                state,
                version=version,
                rowsets=(*state.rowsets, *added),
                prepared=_without(state, txn),
                history=(*state.history, (version, txn))[-HISTORY_MAX:],
                deletes=state.deletes if deletes is None else (*state.deletes, deletes),
            )
        case Compacted(inputs=inputs, output=output, floor=floor, deletes=deletes):
            at = next(place for place, rowset in enumerate(state.rowsets) if rowset.id == inputs[0])
            others = [rowset for rowset in state.rowsets if rowset.id not in inputs]
            added = (output,) if output.files else ()
            return replace(
                state,
                rowsets=(*others[:at], *added, *others[at:]),
                floor=floor,
                deletes=() if deletes is None else (deletes,),
                serial=state.serial + 1,
            )


def check_begin(state: TabletState, txn: int) -> None:
    if txn in state.prepared:
        raise Refused(f"transaction {txn} is prepared already", action="publish or abort it")
    version = version_of(state, txn)
    if version is not None:
        raise Refused(f"transaction {txn} is visible already", found=f"version {version}")


def check_publish(state: TabletState, txn: int, version: int) -> bool:
    """Return True when it is to be done, False when it has been. Raises NotYet, Refused, NotFound."""
    known = dict(state.history).get(version)
    if known == txn:
        return False
    if version_of(state, txn) is not None:
        raise Refused(
            f"transaction {txn} is published already",
            expected=f"version {version_of(state, txn)}",
            found=version,
        )
    if version <= state.version:
        holder = "one that is no longer known" if known is None else f"transaction {known}"
        raise Refused(f"version {version} is another transaction's", expected=txn, found=holder)
    if txn not in state.prepared:
        raise NotFound(
            f"no transaction {txn} is prepared here", action="let the tablet catch up from another"
        )
    if version > state.version + 1:
        raise NotYet(
            f"version {version} of transaction {txn} has others before it",
            expected=f"version {state.version + 1}",
            found=version,
            action="publish those first",
        )
    return True


def check_abort(state: TabletState, txn: int) -> bool:
    """Return True when there is something to abort. Refused when it is visible."""
    version = version_of(state, txn)
    if version is not None:
        raise Refused(f"transaction {txn} is visible and cannot be aborted", found=f"version {version}")
    return txn in state.prepared


def check_schema(state: TabletState, schema: StoredSchema) -> bool:
    """Return True when it is new. Raises DefinitionError for one that is older or another table's."""
    now = state.schema
    if schema == now:
        return False
    check_same_table(now, schema)
    if schema.version <= now.version:
        raise DefinitionError(
            "the schema does not follow the present one",
            expected=f"a version above {now.version}",
            found=f"version {schema.version}",
        )
    return True


def check_same_table(now: StoredSchema, schema: StoredSchema) -> None:
    """Raise DefinitionError for a schema that is neither an earlier nor a later one of the same table."""
    same = (schema.model, schema.keys, schema.sequence) == (now.model, now.keys, now.sequence)
    types = {column.id: column.definition.column_type for column in now.columns}
    typed = all(types.get(c.id, c.definition.column_type) == c.definition.column_type for c in schema.columns)
    if not same or not typed:
        raise DefinitionError(
            "the schema is another table's",
            expected="the same model, keys and types",
            found=f"version {schema.version}, {schema.model}",
        )


def version_of(state: TabletState, txn: int) -> int | None:
    """Return the version that a transaction made, as long as it is remembered."""
    return next((version for version, known in reversed(state.history) if known == txn), None)


def _without(state: TabletState, txn: int) -> dict[int, PreparedTxn]:
    return {known: prepared for known, prepared in state.prepared.items() if known != txn}
