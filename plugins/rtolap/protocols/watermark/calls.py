"""Requests about applications, as `coordinator_calls` has them for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from rtolap.protocols.coordinator.messages.base import Definition
from rtolap.protocols.rest.request import Body, Call, delete, get, path, post
from rtolap.protocols.watermark import history as history
from rtolap.protocols.watermark import messages as wire

_NAMES = TypeAdapter(list[str])
_NOTHING: TypeAdapter[None] = TypeAdapter(None)
_APPLICATION = TypeAdapter(wire.ApplicationInfo)
_WATERMARKS, _HOSTS = TypeAdapter(wire.ApplicationWatermarks), TypeAdapter(wire.HostsInfo)
_CHANGED, _EXPLANATION = TypeAdapter(wire.HostsChanged), TypeAdapter(wire.Explanation)

_UNITS, _HISTORY = TypeAdapter(history.UnitsInfo), TypeAdapter(history.ApplicationHistory)


def applications() -> Call[list[str]]:
    return get(_NAMES, "applications")


def application(name: str) -> Call[wire.ApplicationInfo]:
    return get(_APPLICATION, "applications", name)


def create_application(definition: Definition) -> Call[None]:
    return post(_NOTHING, "applications", body=definition)


def change_application(name: str, definition: Definition) -> Call[None]:
    """Another definition for one that exists, while it runs. Refused where that is not safe."""
    return Call("PUT", path("applications", name), _NOTHING, body=definition)


def drop_application(name: str) -> Call[None]:
    return delete(_NOTHING, "applications", name)


def application_watermarks(name: str) -> Call[wire.ApplicationWatermarks]:
    return get(_WATERMARKS, "applications", name, "watermarks")


def application_hosts(name: str, level: str | None = None, limit: int = 20) -> Call[wire.HostsInfo]:
    """The furthest behind first. `level` may be left out where there is one source."""
    params = {"limit": str(limit), **({} if level is None else {"level": level})}
    return Call("GET", path("applications", name, "hosts"), _HOSTS, params=params)


def application_units(name: str, level: str | None = None, limit: int = 100) -> Call[history.UnitsInfo]:
    """The oldest work first."""
    params = {"limit": str(limit), **({} if level is None else {"level": level})}
    return Call("GET", path("applications", name, "units"), _UNITS, params=params)


def application_history(
    name: str,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    level: str | None = None,
    samples: int | None = None,
) -> Call[history.ApplicationHistory]:
    """At most so many `samples`, spread over the time from `since_ms` to `until_ms`."""
    asked = {"since_ms": since_ms, "until_ms": until_ms, "level": level, "samples": samples}
    params = {key: str(value) for key, value in asked.items() if value is not None}
    return Call("GET", path("applications", name, "history"), _HISTORY, params=params)


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
