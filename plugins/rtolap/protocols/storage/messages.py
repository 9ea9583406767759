"""Storage node protocol, Arrow Flight: messages. Every call carries `authorization: Bearer <token>`.

do_exchange  rows of one transaction. Descriptor: a PutHead. Each batch has a TabletId as its metadata, its
             columns by name (`__delete_sign` among them). The last message has no batch and a PutEnd. The
             node then makes everything durable and answers a PutAnswer as metadata: prepared. A stream that
             ends in any other way leaves nothing.
do_get       Ticket: a ScanRequest, answered by the named columns, rows in no order; or a CopyRequest of
             another node, answered by files (`COPY_NAME`, `COPY_DATA`; a file in several rows).
do_action    `ACTIONS`: requests and their responses, as JSON.

Tickets, descriptors and metadata are JSON. Errors travel as those of receivers do.
"""

from __future__ import annotations

import msgspec

from rtolap.base.errors import QueryError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.model.predicate import Predicate
from rtolap.model.stored.pushed import Partials, TopRows
from rtolap.model.stored.schema import StoredSchema

COPY_NAME, COPY_DATA = "name", "data"


class TabletId(msgspec.Struct, frozen=True, order=True):
    """The identity of a tablet, which is a bucket of a partition.

    Of two tables with the same name, the later one has the larger `table_id`. Of two partitions of a table
    with the same name, the later one has the larger `incarnation`.
    """

    table_id: int
    db: str
    table: str
    partition: str
    bucket: int
    incarnation: int = 0

    def __str__(self) -> str:
        of = f"table {self.table_id}, incarnation {self.incarnation}"
        return f"{self.db}.{self.table}/{self.partition}/{self.bucket} ({of})"

    @property
    def age(self) -> tuple[int, int]:
        """The order of tablets that have the same names: the later one has the larger age."""
        return self.table_id, self.incarnation


class PutHead(msgspec.Struct, frozen=True):
    """The beginning of a stream of rows to a tablet.

    Attributes:
        schema: that of the batches; a node that has an older one takes it over.
        partial: rows keep, of the columns that the batches have not, what their keys have when they are
            published.
    """

    txn_id: int
    schema: StoredSchema
    partial: bool = False


class TabletRows(msgspec.Struct, frozen=True):
    tablet: TabletId
    rows: int


class PutEnd(msgspec.Struct, frozen=True):
    """All tablets that the node keeps of the partitions that the transaction has written to, those without
    rows too: the node compares the numbers with what it has got."""

    tablets: tuple[TabletRows, ...]


class PutAnswer(msgspec.Struct, frozen=True):
    """The answer to a put.

    Attributes:
        prepared: durable, waiting for publish or abort.
    """

    prepared: tuple[TabletId, ...]


class ScanRequest(msgspec.Struct, frozen=True, tag="scan"):
    """The rows of a version as `schema` names them. No columns: all of them.

    NotYet: the node has not got the version. StaleSnapshot: compaction has passed it. PinExpired: the time of
    its pin is over.

    Attributes:
        pin: the pin that keeps the version; empty: the version is pinned as long as this scan runs.
        partials: partial aggregates of the rows are sent in their place; None: rows.
        top: rows that do not belong to the first in an order need not be sent; None: all rows.
    """

    tablet: TabletId
    schema: StoredSchema
    version: int
    columns: tuple[str, ...] = ()
    filter: Predicate | None = None
    partials: Partials | None = None
    top: TopRows | None = None
    pin: str = ""


class CopyRequest(msgspec.Struct, frozen=True, tag="copy"):
    """A request for what the node `after` that version lacks: the files of single versions where they are
    still there, or the whole tablet.
    """

    tablet: TabletId
    after: int


Ticket = ScanRequest | CopyRequest
_tickets = msgspec.json.Decoder(Ticket)


def read_ticket(data: bytes) -> Ticket:
    """Read a ticket. Raises QueryError."""
    try:
        ticket: Ticket = _tickets.decode(data)
        return ticket
    except UNDECODABLE as error:
        raise QueryError("the request is neither a scan nor a copy", found=str(error)) from error


class CreateTablets(msgspec.Struct, frozen=True):
    """Tablets of a partition, empty at version 0. A tablet that exists stays as it is. One of an earlier
    table or incarnation is dropped first; one of a later makes the call harmless."""

    tablets: tuple[TabletId, ...]
    schema: StoredSchema


class DropTablets(msgspec.Struct, frozen=True):
    """A request to drop tablets.

    It leaves tablets of later tables and incarnations alone, and ignores tablets that are gone.
    """

    tablets: tuple[TabletId, ...]


class ChangeSchema(msgspec.Struct, frozen=True):
    """All tablets of the table have this schema, or a later one."""

    table_id: int
    db: str
    table: str
    schema: StoredSchema


class Prepare(msgspec.Struct, frozen=True):
    txn_id: int
    tablets: tuple[TabletId, ...]


class Publish(msgspec.Struct, frozen=True):
    txn_id: int
    versions: tuple[tuple[TabletId, int], ...]


class TabletsDone(msgspec.Struct, frozen=True):
    """The requested tablets for which the node has done what was requested."""

    tablets: tuple[TabletId, ...]


class Missed(msgspec.Struct, frozen=True):
    """`txn_id` is None where the transaction is forgotten already."""

    version: int
    txn_id: int | None


class CatchUp(msgspec.Struct, frozen=True):
    """A replica catches up with another one.

    Attributes:
        missed: ascending, without a gap.
        sources: Flight addresses of nodes that have them all.
    """

    tablet: TabletId
    schema: StoredSchema
    missed: tuple[Missed, ...]
    sources: tuple[str, ...]


class Reached(msgspec.Struct, frozen=True):
    version: int


class Pin(msgspec.Struct, frozen=True):
    """Versions that stay readable until `Unpin`, at most for so long. Answered by those that are: compaction
    may have passed the others, or the node has too many pins.

    Attributes:
        pin_id: of the statement, which it chooses itself.
        keep_s: the node may keep them for less, and says PinExpired then.
    """

    pin_id: str
    keep_s: float
    versions: tuple[tuple[TabletId, int], ...]


class Unpin(msgspec.Struct, frozen=True):
    """The statement has ended. Harmless for a pin that is gone."""

    pin_id: str


class Abort(msgspec.Struct, frozen=True):
    txn_id: int


class Done(msgspec.Struct, frozen=True):
    """A response that says nothing but that it is done."""


class AskStatus(msgspec.Struct, frozen=True):
    """A request of the status, without fields."""


class TabletReport(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` and `bytes` as they lie in files: before merging, deleted ones included.

    Attributes:
        floor: versions below it cannot be read any more, because compaction has passed them.
        stopped: why the tablet has stopped; None for one that works.
        rowsets: sets of files, each of one version or of several that compaction has joined.
        pending_files: files that the next compaction joins; 0 where there is none to do.
        compacting_since_ms: when the compaction that runs began; None where none runs.
        compacted_ms: when one has ended last, since the node started; None where none has.
        compaction_problem: why the last attempt failed; "" where it did not.
    """

    tablet: TabletId
    version: int
    floor: int
    files: int
    rows: int
    bytes: int
    prepared: tuple[int, ...] = ()
    stopped: str | None = None
    rowsets: int = 0
    pending_files: int = 0
    compacting_since_ms: int | None = None
    compacted_ms: int | None = None
    compaction_problem: str = ""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A storage node, as it states itself.

    Attributes:
        loading: transactions whose rows are coming in.
        broken: folders that cannot be opened, and why.
    """

    name: str
    node_id: str
    free_bytes: int
    load_memory_bytes: int
    loading: tuple[int, ...] = ()
    tablets: tuple[TabletReport, ...] = ()
    broken: dict[str, str] = {}


# action -> (body, answer)
ACTIONS: dict[str, tuple[type[msgspec.Struct], type[msgspec.Struct]]] = {
    "create": (CreateTablets, Done),
    "drop": (DropTablets, Done),
    "change_schema": (ChangeSchema, Done),
    "prepare": (Prepare, TabletsDone),
    "publish": (Publish, TabletsDone),
    "catch_up": (CatchUp, Reached),
    "pin": (Pin, TabletsDone),
    "unpin": (Unpin, Done),
    "abort": (Abort, Done),
    "status": (AskStatus, NodeStatus),
}


class Heartbeat(msgspec.Struct, frozen=True):
    """Body of `POST /api/v1/storage-nodes/{name}/heartbeat` on a front end.

    Attributes:
        node_id: that of the node's data folder.
        address: its Flight endpoint, host:port.
        body_url: the base URL where it takes bodies of loads; empty where it takes none.
    """

    node_id: str
    address: str
    free_bytes: int
    body_url: str = ""


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The node is believed to live for so long; it sends the next one well before."""

    lease_ms: int


class StorageNodeInfo(msgspec.Struct, frozen=True):
    """`GET /api/v1/storage-nodes`: every node that ever was, by name. Fields as in `Heartbeat`."""

    name: str
    address: str
    alive: bool
    free_bytes: int
    body_url: str = ""
    draining: bool = False


class NodeReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of a storage node.

    Attributes:
        state: open, draining, away, or lost: it was away for so long that its replicas are replaced.
        replicas: those that it has, or is to have, those that leave it among them.
        bytes: of these; 0 for a node that does not answer.
    """

    name: str
    state: str
    replicas: int
    bytes: int


class MoveInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that moves.

    Attributes:
        old_node: empty where the replica is one more than before.
        reason: lost, raise, drain or rebalance.
        state: planned, COPYING, SWITCHED or RETIRING.
    """

    db: str
    table: str
    partition: str
    bucket: int
    old_node: str
    node: str
    reason: str
    state: str
    bytes: int = 0


class MovesInfo(msgspec.Struct, frozen=True):
    """`GET /api/v1/storage-moves`"""

    nodes: tuple[NodeReplicas, ...]
    moves: tuple[MoveInfo, ...]


class Drain(msgspec.Struct, frozen=True):
    """Body of `POST /api/v1/storage-nodes/{name}/drain`."""

    undo: bool = False


class Rebalance(msgspec.Struct, frozen=True):
    """Body of `POST /api/v1/storage-moves/rebalance`, which is answered with the moves."""

    plan_only: bool = False
