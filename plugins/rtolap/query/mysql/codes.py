"""Numbers of the protocol, and our errors as MySQL's."""

from __future__ import annotations

from rtolap.base.errors import (
    Corrupted,
    Forbidden,
    NotFound,
    NotYet,
    OutOfRange,
    QueryError,
    QueryTimeout,
    Refused,
    RtolapError,
    Unauthorized,
    Unavailable,
    UnknownFunction,
)
from rtolap.wire.query_warning import WarningCode

SERVER_VERSION = "8.0.33-rtolap"  # clients decide by it which grammar and catalogue they use
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
    """The client did not ask for TLS where nothing else is taken."""

    code = "tls_required"


ER_ACCESS_DENIED, ER_UNKNOWN_COM, ER_BAD_DB, ER_TOO_MANY = 1045, 1047, 1049, 1040
ER_UNSUPPORTED = 1235
# Numbers of our own for what MySQL does not know; clients show them and choose nothing by them.
WARNING_NUMBERS: dict[WarningCode, int] = {
    "time_aligned": 30001,
    "clock_in_utc": 30002,
    "approximate": 30003,
    "records_refused": 30004,
    "not_enabled": 30005,
    "not_consuming": 30006,
    "events_lost": 30007,
}


def error_code(error: RtolapError) -> tuple[int, str]:
    """(error number, SQL state) by which clients choose an exception."""
    text = error.message
    match error:
        case QueryTimeout():
            return 3024, "HY000"
        case OutOfRange():
            return 1690, "22003"
        case UnknownFunction():
            return 1305, "42000"
        case QueryError() if "interrupted" in text:
            return 1317, "70100"
        case QueryError() if text.startswith("unknown table"):
            return 1146, "42S02"
        case QueryError() if text.startswith("unknown column"):
            return 1054, "42S22"
        case QueryError() if text.startswith("unknown database"):
            return 1049, "42000"
        case QueryError() if text.startswith("bad SQL"):
            return 1064, "42000"
        case QueryError() if text.startswith("unsupported"):
            return 1235, "42000"
        case QueryError():
            return 1105, "HY000"
        case TlsRequired():
            return 3159, "HY000"
        case Unauthorized():
            return ER_ACCESS_DENIED, "28000"
        case Forbidden():
            return 1142, "42000"
        case NotYet():
            return 1205, "HY000"
        case PacketTooLarge():
            return 1153, "08S01"
        case Refused() if text.startswith("partition") and "is there already" in text:
            return 1517, "HY000"
        case Refused() if "is there already" in text:
            return 1050, "42S01"
        case NotFound() if text.startswith("no partition"):
            return 1507, "HY000"
        case NotFound():
            return 1146, "42S02"
        case Unavailable() if "too many" in text:
            return 1040, "08004"
        case Unavailable():
            return 1205, "HY000"
        case Corrupted():
            return 1194, "HY000"
    return 1105, "HY000"
