"""Exceptions of HBase as errors of ours: told apart by the Java class that the response names."""

from __future__ import annotations

from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError, Unavailable
from rtolap.sep.hbase.rpc_pb2 import ExceptionResponse

_STARTING_OR_BUSY = frozenset(
    (
        "CallQueueTooBigException",
        "CallTimeoutException",
        "MasterNotRunningException",
        "MasterStoppedException",
        "NotServingRegionException",
        "PleaseHoldException",
        "RegionInRecoveryException",
        "RegionMovedException",
        "RegionOpeningException",
        "RegionServerAbortedException",
        "RegionServerStoppedException",
        "RegionTooBusyException",
        "ServerNotRunningYetException",
        "StandbyMasterException",
    )
)
_NOT_THERE_YET = "java.lang.NullPointerException"
_UNKNOWN = frozenset(
    (
        "NamespaceNotFoundException",
        "NoSuchColumnFamilyException",
        "ReplicationPeerNotFoundException",
        "TableNotFoundException",
        "UnknownRegionException",
    )
)


def remote_error(exception: ExceptionResponse, what: str) -> RtolapError:
    """`what` was refused with the exception: Unavailable where it will pass (the server starts, stops or is
    busy, the region is on its way), NotFound, Forbidden, otherwise Refused."""
    name = exception.exception_class_name.rpartition(".")[2].rpartition("$")[2]
    # the first line of the trace is the exception's text; NotFound of a peer has the peer's name alone
    text = exception.stack_trace.partition("\n")[0].strip() or exception.exception_class_name
    if name == "IOException" and _NOT_THERE_YET in exception.stack_trace:
        # a master that starts answers calls before all of its parts are there
        return Unavailable(f"{what}: not now", found=text, action="try again")
    return error_of(name, text, what)


def error_of(name: str, text: str, what: str) -> RtolapError:
    """`name`: the exception's class without its package."""
    if name in _STARTING_OR_BUSY:
        return Unavailable(f"{what}: not now", found=text, action="try again")
    if name in _UNKNOWN:
        return NotFound(f"{what}: HBase does not know it", found=text)
    if name == "AccessDeniedException":
        return Forbidden(f"{what} is not allowed", found=text, action="grant the user the right ADMIN")
    return Refused(f"{what} was refused by HBase", found=text)
