"""The ping that shows whether a peer is silent: a busy one responds to it, one that stands still does not."""

from __future__ import annotations

from collections.abc import Callable

from rtolap.base.errors import RtolapError, Unavailable

PING_AFTER_S = 0.25  # without an answer, before a peer is pinged and after each ping that it has answered
PING_S = 0.5  # within which a peer answers one
PING_AGAIN_S = 1.0  # between pings of a peer that did not answer the last


def silence(ping: Callable[[float], None]) -> Unavailable | None:
    """None where the peer answers, with whatever error; `ping(within_s)` raises Unavailable if not."""
    try:
        ping(PING_S)
    except Unavailable as error:
        return error
    except RtolapError:
        return None
    return None
