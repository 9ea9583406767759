"""Answers to calls that fail: exceptions of HBase, by their Java classes.

An exception makes the region server send the same edits again after a pause; it looks at neither the class
nor `do_not_retry`, but logs class and message: they are for whoever reads its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtolap.base.errors import Corrupted, RtolapError, TooLarge, TooSlow, Unavailable
from rtolap.sep.hbase.rpc_pb2 import ConnectionHeader

_MESSAGE_MAX: Final = 2000
_OPERATION: Final = "java.lang.UnsupportedOperationException"
_CODEC: Final = "org.apache.hadoop.hbase.ipc.UnsupportedCellCodecException"
_COMPRESSOR: Final = "org.apache.hadoop.hbase.ipc.UnsupportedCompressionCodecException"
ACCESS_DENIED: Final = "org.apache.hadoop.hbase.security.AccessDeniedException"
_OTHER: Final = "java.io.IOException"
_CLASSES: Final[Mapping[type[RtolapError], str]] = {
    Corrupted: "org.apache.hadoop.hbase.DoNotRetryIOException",
    TooLarge: "org.apache.hadoop.hbase.DoNotRetryIOException",
    TooSlow: "org.apache.hadoop.hbase.exceptions.TimeoutIOException",
    Unavailable: "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException",
}
_CODECS: Final = frozenset(
    {
        "org.apache.hadoop.hbase.codec.KeyValueCodec",
        "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags",
    }
)


class CallFailure(Exception):
    """`outcome` is one of metrics.CALL_OUTCOMES, `class_name` a class of Java, `message` for people."""

    def __init__(self, outcome: str, class_name: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.class_name = class_name
        self.message = message[:_MESSAGE_MAX]


def failure_of(outcome: str, error: Exception) -> CallFailure:
    named = (class_name for kind, class_name in _CLASSES.items() if isinstance(error, kind))
    text = str(error) if isinstance(error, RtolapError) else f"{type(error).__name__}: {error}"
    return CallFailure(outcome, next(named, _OTHER), text)


def unknown_method(method: str, known: list[str]) -> CallFailure:
    message = f"{method[:100]!r} is no method of a consumer of change capture; expected one of {known}"
    return CallFailure("unknown_method", _OPERATION, message)


def unsupported_encoding(header: ConnectionHeader) -> CallFailure | None:
    """Return what every call of the connection is answered with; None if its cells can be read."""
    codec, compressor = header.cell_block_codec_class, header.cell_block_compressor_class
    if compressor:
        message = (
            f"compressed cell blocks are not read; found {compressor[:200]}; "
            "take hbase.client.rpc.compressor out of the region servers' settings"
        )
        return CallFailure("unsupported", _COMPRESSOR, message)
    if codec and codec not in _CODECS:
        message = (
            f"cell blocks of this codec are not read; expected {sorted(_CODECS)}; found {codec[:200]}; "
            "set hbase.replication.rpc.codec of the region servers"
        )
        return CallFailure("unsupported", _CODEC, message)
    return None
