"""Numbers of the protocol, and our errors as MySQL's."""

from __future__ import annotations

from rtolap.base.errors import (
    AlreadyExists,
    ColumnExists,
    ColumnNotFound,
    Corrupted,
    Forbidden,
    NotFound,
    NotYet,
    OutOfRange,
    OverBudget,
    PartitionExists,
    PartitionNotFound,
    QueryInterrupted,
    QueryTimeout,
    Refused,
    RtolapError,
    SqlSyntaxError,
    TooLittleDisk,
    TooManyAtOnce,
    Unauthorized,
    Unavailable,
    UnknownColumn,
    UnknownConnection,
    UnknownDatabase,
    UnknownFunction,
    UnknownPrepared,
    UnknownTable,
    UnknownVariable,
    UnknownZone,
    UnreadableValue,
    UnsupportedSql,
)
from rtolap.protocols.query.messages import WarningCode

UTF8MB4 = 255
BINARY_CHARSET = 63

LONG_PASSWORD, FOUND_ROWS, LONG_FLAG, CONNECT_WITH_DB = 1, 2, 4, 8
PROTOCOL_41, SSL, TRANSACTIONS, SECURE_CONNECTION = 1 << 9, 1 << 11, 1 << 13, 1 << 15
MULTI_RESULTS, PLUGIN_AUTH, CONNECT_ATTRS = 1 << 17, 1 << 19, 1 << 20
PLUGIN_AUTH_LENENC, SESSION_TRACK, DEPRECATE_EOF = 1 << 21, 1 << 23, 1 << 24
CAPABILITIES = (
    LONG_PASSWORD | FOUND_ROWS | LONG_FLAG | CONNECT_WITH_DB | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION
    | MULTI_RESULTS | PLUGIN_AUTH | CONNECT_ATTRS | PLUGIN_AUTH_LENENC | DEPRECATE_EOF
)  # fmt: skip
STATUS_AUTOCOMMIT, STATUS_CURSOR_EXISTS, STATUS_LAST_ROW_SENT = 2, 64, 128
CURSOR_TYPE_READ_ONLY = 1

COM_QUIT, COM_INIT_DB, COM_QUERY, COM_FIELD_LIST, COM_STATISTICS = 1, 2, 3, 4, 9
COM_PROCESS_KILL, COM_PING, COM_CHANGE_USER = 12, 14, 17
COM_STMT_PREPARE, COM_STMT_EXECUTE, COM_STMT_SEND_LONG_DATA, COM_STMT_CLOSE = 22, 23, 24, 25
COM_STMT_RESET, COM_SET_OPTION, COM_STMT_FETCH, COM_RESET_CONNECTION = 26, 27, 28, 31

TINY, LONG, DOUBLE, NULL, LONGLONG, DATE, TIME, DATETIME = 1, 3, 5, 6, 8, 10, 11, 12
SHORT, FLOAT, TIMESTAMP, INT24 = 2, 4, 7, 9
NEWDECIMAL, BLOB, VAR_STRING, STRING, VARCHAR = 246, 252, 253, 254, 15


class PacketTooLarge(Refused):
    """More bytes at a time than are taken; the connection goes on."""

    code = "packet_too_large"


class TlsRequired(Unauthorized):
    """The client did not start TLS where the server requires it."""

    code = "tls_required"


ER_ACCESS_DENIED, ER_UNKNOWN_COM, ER_BAD_DB, ER_TOO_MANY = 1045, 1047, 1049, 1040
ER_UNSUPPORTED, ER_TRUNCATED = 1235, 1292
# Numbers of our own for what MySQL does not know; clients show them and choose nothing by them.
WARNING_NUMBERS: dict[WarningCode, int] = {
    "time_aligned": 30001,
    "clock_in_utc": 30002,
    "approximate": 30003,
    "records_refused": 30004,
    "not_enabled": 30005,
    "not_consuming": 30006,
    "events_lost": 30007,
    "column_since": 30008,
    "text_cut": 30009,
    "truncated_value": ER_TRUNCATED,
    "without_effect": ER_UNSUPPORTED,
}


# Of a class and those below it; the first that fits counts. What is not here is an unknown error of MySQL's.
_NUMBERS: tuple[tuple[type[RtolapError], tuple[int, str]], ...] = (
    (QueryTimeout, (3024, "HY000")),
    (QueryInterrupted, (1317, "70100")),
    (OutOfRange, (1690, "22003")),
    (UnreadableValue, (1292, "22007")),
    (UnknownFunction, (1305, "42000")),
    (UnknownTable, (1146, "42S02")),
    (UnknownColumn, (1054, "42S22")),
    (UnknownConnection, (1094, "HY000")),
    (UnknownVariable, (1193, "HY000")),
    (UnknownZone, (1298, "HY000")),
    (UnknownPrepared, (1243, "HY000")),
    (UnknownDatabase, (ER_BAD_DB, "42000")),
    (SqlSyntaxError, (1064, "42000")),
    (UnsupportedSql, (ER_UNSUPPORTED, "42000")),
    (TlsRequired, (3159, "HY000")),
    (Unauthorized, (ER_ACCESS_DENIED, "28000")),
    (Forbidden, (1142, "42000")),
    (NotYet, (1205, "HY000")),
    (PacketTooLarge, (1153, "08S01")),
    (OverBudget, (3170, "HY000")),  # "Memory capacity … exceeded"
    (PartitionExists, (1517, "HY000")),
    (AlreadyExists, (1050, "42S01")),
    (ColumnExists, (1060, "42S21")),
    (ColumnNotFound, (1054, "42S22")),
    (PartitionNotFound, (1507, "HY000")),
    (NotFound, (1146, "42S02")),
    (TooLittleDisk, (1021, "HY000")),
    (TooManyAtOnce, (ER_TOO_MANY, "08004")),
    (Unavailable, (1205, "HY000")),
    (Corrupted, (1194, "HY000")),
)
_OTHER = (1105, "HY000")


def error_code(error: RtolapError) -> tuple[int, str]:
    """Return the error number and the SQL state by which clients choose an exception."""
    return next((number for kind, number in _NUMBERS if isinstance(error, kind)), _OTHER)
