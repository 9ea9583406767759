"""Stream Load protocol, as clients of Doris know it: messages. Basic auth; every body is JSON.

    PUT  /api/{db}/{table}/_stream_load     rows, in a format of the headers → LoadAnswer, HTTP 200 also for a
                                            failed load; a front end that takes no bodies answers 307
    PUT  /api/{db}/_stream_load_2pc         headers `txn_id` or `label`, `txn_operation: commit | abort`
                                            → TwoPhaseAnswer
    GET  /api/{db}/get_load_state?label=    → StateAnswer
    GET  /api/{db}/{table}/_schema          → SchemaAnswer

Beyond Doris, for loaders that must know for certain what has become of a label, however late they ask:

    header `keep_label: until_acknowledged` of a load   the label is forgotten by no clock and no count
    PUT  /api/{db}/_acknowledge_labels      {"labels": […]} → TwoPhaseAnswer; unknown ones are harmless
    PUT  /api/{db}/_close_label?label=      → StateAnswer: COMMITTED or VISIBLE where a load was taken, else
                                            ABORTED, and from now on none is, until it is acknowledged

`/` names which of the two a front end is: `ServerInfo`. A server that does not know the header ignores it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from rtolap.base.errors import Corrupted, RowsRefused, TooLarge

KEEP_LABEL_HEADER = "keep_label"
KEEP_LABEL_VALUE = "until_acknowledged"
NOT_AFTER_HEADER = "not_after_ms"
_OF_THE_ROWS = frozenset((RowsRefused.code, TooLarge.code, Corrupted.code))

LoadStatus = Literal["Success", "Publish Timeout", "Label Already Exists", "Fail"]
BodyFormat = Literal["arrow", "json", "csv", "csv_with_names", "csv_with_names_and_types", "parquet", "orc"]


class LoadState(StrEnum):
    """State of a label, from `get_load_state`. UNKNOWN: nobody has used it, or it has been forgotten."""

    UNKNOWN = "UNKNOWN"
    PREPARE = "PREPARE"
    PRECOMMITTED = "PRECOMMITTED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


class LoadAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Encoded in the order of the fields, which is the documented one; what is UNSET is left out.

    `txn_id` is -1 where no transaction was begun. Times in ms.

    Attributes:
        code: of a failed load, that of the error; this product's.
    """

    txn_id: int = -1
    label: str = ""
    comment: str = ""
    two_phase_commit: Literal["true", "false"] = "false"  # a string, as clients expect it
    status: LoadStatus = "Fail"
    existing_job_status: str | UnsetType = UNSET  # RUNNING | PRECOMMITTED | FINISHED
    message: str = ""
    number_total_rows: int = 0
    number_loaded_rows: int = 0
    number_filtered_rows: int = 0
    number_unselected_rows: int = 0
    load_bytes: int = 0
    load_time_ms: int = 0
    begin_txn_time_ms: int = 0
    stream_load_put_time_ms: int = 0
    read_data_time_ms: int = 0
    write_data_time_ms: int = 0
    commit_and_publish_time_ms: int = 0
    error_url: str | UnsetType = msgspec.field(default=UNSET, name="ErrorURL")
    first_error_msg: str | UnsetType = UNSET
    code: str | UnsetType = UNSET

    @property
    def is_durable(self) -> bool:
        """Return True if it states that the rows are, or will be, in the table."""
        return self.status in ("Success", "Publish Timeout")

    @property
    def refuses_rows(self) -> bool:
        """Return True if the load failed for what its rows hold. Else the same rows may be taken later."""
        return self.status == "Fail" and self.code in _OF_THE_ROWS


class TwoPhaseAnswer(msgspec.Struct, frozen=True):
    status: str  # Success | Fail
    msg: str = ""


class StateAnswer(msgspec.Struct, frozen=True):
    """`code` is 0 where `data` is the state; otherwise `msg` says why there is none."""

    msg: str = "success"
    code: int = 0
    data: str | None = None
    count: int = 0


class SchemaColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column as `_schema` returns it; numbers are strings, as in Doris.

    Attributes:
        is_nullable: Yes or No; empty where the server does not state it.
        default: None where there is none, or the server does not state it.
    """

    name: str
    type: str
    comment: str = ""
    aggregation_type: str = ""
    is_nullable: str = "Yes"
    precision: str = ""
    scale: str = ""
    default: str | None = None


class TableSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table.

    Attributes:
        keys_type: DUP_KEYS, AGG_KEYS, UNIQUE_KEYS or PRIMARY_KEYS; empty where the server does not state it.
        version: this product's own, as is `sequence_column`.
    """

    status: int = 200
    keys_type: str = msgspec.field(name="keysType", default="DUP_KEYS")
    properties: tuple[SchemaColumn, ...] = ()
    version: int | None = None
    sequence_column: str | None = None


class SchemaAnswer(msgspec.Struct, frozen=True):
    msg: str = "success"
    code: int = 0
    data: TableSchema | None = None
    count: int = 0


class AcknowledgeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    labels: tuple[str, ...]


class ServerInfo(msgspec.Struct, frozen=True):
    """`GET /` of this product's endpoint, without credentials. Anything else: a server that forgets
    labels.
    """

    service: str = ""
    keeps_labels: bool = False


class SendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a client's load.

    Attributes:
        headers: further documented ones, lower case.
        not_after_ms: since the epoch; a request that arrives later is refused, for its label may have been
            given back by then.
        rows: the number of rows in the body; None where it is not known.
    """

    format: BodyFormat = "arrow"
    columns: tuple[str, ...] = ()
    timeout_s: int = 600
    max_filter_ratio: float = 0.0
    strict_mode: bool = True
    keep_label: bool = False
    not_after_ms: int | None = None
    rows: int | None = None
    headers: dict[str, str] = {}
