"""The processes that listen on a port: a response counts only when it is our own process that gave it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

import psutil

from rtolap.base.errors import ProcessFailed
from rtolap.stack.pids import PidRecord, session_members
from rtolap.stack.ports import is_free

_POLL_S = 0.05
_FREE_TIMEOUT_S = 5.0  # a predecessor's socket may need a moment to close


def foreign_listener(ports: Collection[int], record: PidRecord | None) -> str | None:
    """None when every port is listened on by the recorded process, its session or its descendants.

    Otherwise who has the first of those that are not, in words. `record` None: it is nobody's.
    """
    ours = {port for pid in _family(record) for port in _listened_by(pid)} if record else set()
    for port in ports:
        if port not in ours:
            return f"port {port} belongs to {holder(port)}"
    return None


def require_free(ports: Collection[int], name: str) -> None:
    """Raises ProcessFailed with the holder of a port that stays taken.

    It may have been taken since it was chosen, and the other's answers must not pass for ours.
    """
    deadline = time.monotonic() + _FREE_TIMEOUT_S
    for port in ports:
        while not is_free(port):
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{name} cannot have its port",
                    expected=f"port {port} free",
                    found=f"it belongs to {holder(port)}",
                    action="end that process; or stop the stack and start it again, on another port",
                )
            time.sleep(_POLL_S)


def holder(port: int) -> str:
    """Return who listens on the port, as far as this user may see it."""
    for connection in psutil.net_connections("tcp"):
        if _listening_port(connection) == port:
            if connection.pid is None:
                return "another user's process"
            try:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
            except psutil.NoSuchProcess:
                return f"process {connection.pid}, which has just ended"
    return "nobody"


def _family(record: PidRecord) -> Iterator[int]:
    yield from session_members(record)
    try:
        for child in psutil.Process(record.pid).children(recursive=True):
            yield child.pid
    except psutil.NoSuchProcess:
        return


def _listened_by(pid: int) -> set[int]:
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return set()  # it has just ended, or dropped its rights: then it is not seen to listen
    return {port for connection in connections if (port := _listening_port(connection))}


def _listening_port(connection: Any) -> int | None:
    if connection.status != psutil.CONN_LISTEN:
        return None
    port: int = connection.laddr.port
    return port
