"""Requests about applications, as `coordinator_calls` has them for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from rtolap.wire import watermark as wire
from rtolap.wire.coordinator_messages.base import Definition
from rtolap.wire.coordinator_request import Body, Call, get, path, post

_NAMES = TypeAdapter(list[str])
_NOTHING: TypeAdapter[None] = TypeAdapter(None)
_APPLICATION = TypeAdapter(wire.ApplicationInfo)
_WATERMARKS, _HOSTS = TypeAdapter(wire.ApplicationWatermarks), TypeAdapter(wire.HostsInfo)
_CHANGED, _EXPLANATION = TypeAdapter(wire.HostsChanged), TypeAdapter(wire.Explanation)


def applications() -> Call[list[str]]:
    return get(_NAMES, "applications")


def application(name: str) -> Call[wire.ApplicationInfo]:
    return get(_APPLICATION, "applications", name)


def create_application(definition: Definition) -> Call[None]:
    return post(_NOTHING, "applications", body=definition)


def drop_application(name: str) -> Call[None]:
    return Call("DELETE", path("applications", name), _NOTHING)


def application_watermarks(name: str) -> Call[wire.ApplicationWatermarks]:
    return get(_WATERMARKS, "applications", name, "watermarks")


def application_hosts(name: str, level: str | None = None, limit: int = 20) -> Call[wire.HostsInfo]:
    """The furthest behind first. `level` may be left out where there is one source."""
    params = {"limit": str(limit), **({} if level is None else {"level": level})}
    return Call("GET", path("applications", name, "hosts"), _HOSTS, params=params)


def change_hosts(
    name: str, level: str, action: str, hosts: Sequence[str], end_ms: int | None = None
) -> Call[wire.HostsChanged]:
    """`action`: register, renew, drain or remove; see `watermark.HostsChange`."""
    body: Body = {"level": level, "action": action, "hosts": list(hosts), "end_ms": end_ms}
    return post(_CHANGED, "applications", name, "hosts", body=body)


def explain_window(name: str, window_end_ms: int) -> Call[wire.Explanation]:
    params = {"window_end_ms": str(window_end_ms)}
    return Call("GET", path("applications", name, "explain"), _EXPLANATION, params=params)


def approve_windows(name: str, until_ms: int, by: str, reason: str) -> Call[wire.ApplicationInfo]:
    """Let the windows that end at or below `until_ms` close as they are. Recorded."""
    body: Body = {"until_ms": until_ms, "by": by, "reason": reason}
    return post(_APPLICATION, "applications", name, "approvals", body=body)
