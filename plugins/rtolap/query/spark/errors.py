"""Errors of Spark become errors of the tree, by condition. Spark's own words reach a log, never a user."""

from __future__ import annotations

import logging

import grpc  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from rtolap.base.errors import (
    Corrupted,
    OutOfRange,
    QueryError,
    QueryInterrupted,
    RtolapError,
    Unavailable,
)
from rtolap.cubes.format.history import REBUILD

log = logging.getLogger(__name__)

# The client's own messages are read by protobuf, which takes a hundred levels.
ERRORS = (PySparkException, grpc.RpcError, DecodeError)
_OVERFLOWS = (
    "ARITHMETIC_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "CAST_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
)
_MISSING = ("FAILED_READ_FILE.FILE_NOT_EXIST", "PATH_NOT_FOUND")
_DAMAGED = (
    "FAILED_READ_FILE",
    "CANNOT_READ_FILE_FOOTER",
    "HLL_INVALID_INPUT_SKETCH_BUFFER",
    "HLL_UNION_DIFFERENT_LG_K",
)
_GONE = ("INVALID_HANDLE", "NO_ACTIVE_SESSION", "INVALID_CURSOR")


class ScanGone(Unavailable):
    """The session of a scan is not there any more: the service was restarted, or has closed it."""


def translated(error: Exception, service: str) -> RtolapError:
    """Return the error that a user is shown.

    Args:
        service: address of the Spark service.
    """
    if isinstance(error, DecodeError):
        return QueryError(
            "the conditions are nested too deep for Spark",
            expected="some thirty levels of AND in OR in AND",
            action="write them flatter, or SET rtolap_engine = local",
        )
    condition = condition_of(error)
    log.warning("Spark at %s refused a scan of history: %s: %s", service, condition, str(error)[:2000])
    if condition.startswith("OPERATION_CANCELED"):
        return QueryInterrupted("the scan on Spark was interrupted")
    if condition.startswith(_OVERFLOWS):
        return OutOfRange("a sum of history is out of the range of its type", expected="at most 38 digits")
    if condition.startswith(_MISSING):
        return Corrupted("a file of history is missing, Spark says", found=condition, action=REBUILD)
    if condition.startswith(_DAMAGED):
        return Corrupted("history cannot be read by Spark", found=condition, action=REBUILD)
    if condition.startswith(_GONE):
        return ScanGone(
            "the session of the query service on Spark was lost",
            found=condition,
            action="ask again, and look at the Spark service if it stays so",
        )
    if _is_transport(error):
        return Unavailable(
            f"the Spark service of large reads at {service} does not answer",
            found=condition or type(error).__name__,
            action="see that it runs and has the same token; SET rtolap_engine = local reads without it",
        )
    return Unavailable(
        "Spark could not read the history",
        found=condition or type(error).__name__,
        action="see the log of the query service; SET rtolap_engine = local reads without Spark",
    )


def condition_of(error: Exception) -> str:
    """Return Spark's name of the condition, or grpc's of the status; empty where there is none."""
    if isinstance(error, PySparkException):
        condition = error.getCondition()
        if condition:
            return str(condition)
    code = getattr(error, "code", None)
    if isinstance(error, grpc.RpcError) and callable(code):
        return str(code().name)
    cause = error.__cause__ or error.__context__
    return condition_of(cause) if isinstance(cause, Exception) else ""


def _is_transport(error: Exception) -> bool:
    return not isinstance(error, SparkConnectGrpcException) or bool(_status(error))


def _status(error: SparkConnectGrpcException) -> str:
    """Return grpc's status where the error is one of the transport rather than of Spark."""
    try:
        code = error.getGrpcStatusCode()
    except AttributeError:
        return ""
    return code.name if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED) else ""
