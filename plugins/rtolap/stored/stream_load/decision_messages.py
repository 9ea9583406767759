"""Requests of loads to the master over REST, below `/api/v1/load-decisions` of a front end; bearer token.

    POST /table               TableRequest          TableEntry
    POST /partitions          PartitionsRequest     TableEntry
    POST /can-take            CanTakeRequest        CanTakeAnswer
    POST /begin               BeginRequest          BeginAnswer
    POST /precommit, /commit  CommitRequest         Transaction
    POST /abort               AbortRequest          Transaction
    POST /transaction         TransactionRequest    Transaction
    POST /wait                WaitRequest           WaitAnswer

Other front ends answer 307 to the master. Every request may be repeated. Errors are `base.errors`, as JSON;
a label that is used is an answer, because it has more than a message.
"""

from __future__ import annotations

import msgspec

from rtolap.protocols.stored_tables.messages import API
from rtolap.stored.metastore.records import NO_FIGURES, LoadFigures, Partition, Transaction

PREFIX = f"{API}/load-decisions"
WAIT_S_MAX = 2.0  # of one request; who waits for longer asks again


class TableRequest(msgspec.Struct, frozen=True):
    db: str
    table: str


class PartitionsRequest(msgspec.Struct, frozen=True):
    db: str
    table: str
    instants_ms: tuple[int, ...]


class CanTakeRequest(msgspec.Struct, frozen=True):
    """Whether nodes can take rows of these partitions.

    Attributes:
        table_id: of the table as the load has read it. Another one of the same name takes none of its rows.
    """

    db: str
    table: str
    table_id: int
    partitions: tuple[str, ...]


class CanTakeAnswer(msgspec.Struct, frozen=True):
    can_take: bool


class UsedLabel(msgspec.Struct, frozen=True):
    message: str
    txn_id: int
    existing_job_status: str


class BeginAnswer(msgspec.Struct, frozen=True):
    """The answer to a request to begin.

    Attributes:
        transaction: None where another one holds the label.
        used_label: None where the transaction has begun.
    """

    transaction: Transaction | None
    used_label: UsedLabel | None = None


class CommitRequest(msgspec.Struct, frozen=True):
    db: str
    txn_id: int
    partitions: tuple[Partition, ...]
    figures: LoadFigures = NO_FIGURES


class AbortRequest(msgspec.Struct, frozen=True):
    db: str
    txn_id: int
    reason: str
    figures: LoadFigures = NO_FIGURES


class TransactionRequest(msgspec.Struct, frozen=True):
    db: str
    txn_id: int


class WaitRequest(msgspec.Struct, frozen=True):
    """A request to wait until a transaction is visible.

    Attributes:
        timeout_s: at most `WAIT_S_MAX` counts.
    """

    db: str
    txn_id: int
    timeout_s: float


class WaitAnswer(msgspec.Struct, frozen=True):
    visible: bool
