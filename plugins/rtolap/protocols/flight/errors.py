"""Errors that cross Arrow Flight: the JSON of `RtolapError.to_dict()` behind ERROR_MARK, in their text."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.flight as flight

from rtolap.base.errors import Corrupted, RtolapError, Unauthorized, Unavailable, from_dict
from rtolap.protocols.receiver.messages import ERROR_MARK

_DECODER = json.JSONDecoder()


def named(peer: str, operation: str, error: Exception) -> RtolapError:
    """Return the error that the peer has named; else that it does not respond, or not to this token."""
    text = str(error)
    _, mark, encoded = text.partition(ERROR_MARK)
    if mark:
        try:
            payload, _ = _decode_prefix(encoded)
        except ValueError:
            return Corrupted(f"{peer} failed to {operation}", found=text[:500])
        return from_dict(payload)
    if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return Unauthorized(f"{peer} does not accept the cluster token")
    return Unavailable(f"{peer} does not answer {operation}", found=text[:300])


def _decode_prefix(text: str) -> tuple[dict[str, Any], int]:
    """The JSON object at the beginning; gRPC adds words of its own behind it."""
    payload, end = _DECODER.raw_decode(text.lstrip())
    if not isinstance(payload, dict):
        raise ValueError("not an object")
    return payload, end
