"""The watermark of a cube that closes by an application: levels, and the hosts that hold it back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rtolap.base.decoding import copied
from rtolap.protocols.watermark.messages import ApplicationInfo, ApplicationWatermarks, HostsInfo

HOSTS_MAX = 50  # the furthest behind of each source


class Level(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    input_ms: int | None
    output_ms: int | None
    published_ms: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A source of the application.

    Attributes:
        counting: hosts that count; `holding` of them are not beyond its watermark, `unseen` were never read.
        problem: why its list of hosts is old; empty where it is not.
    """

    level: str
    watermark_ms: int | None
    counting: int
    holding: int
    unseen: int
    awaited_partitions: tuple[int, ...]
    problem: str


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is behind.

    Attributes:
        holds: the watermark waits for it.
        share_ppm: of a window's events, how many it may still owe.
        hint: what may be wrong with it.
    """

    source: str
    host: str
    latest_ms: int | None
    behind_ms: int | None
    holds: bool
    share_ppm: int
    hint: str


class CubeWatermarks(msgspec.Struct, frozen=True, kw_only=True):
    """The watermark of a cube's application.

    Attributes:
        application: empty for a cube that closes by its own partitions.
        global_ms: the application's low watermark.
        error: why the rest is missing; empty if it is not.
    """

    now_ms: int
    application: str = ""
    global_ms: int | None = None
    approved_until_ms: int | None = None
    levels: tuple[Level, ...] = ()
    sources: tuple[Source, ...] = ()
    hosts: tuple[Host, ...] = ()
    problems: tuple[str, ...] = ()
    error: str = ""


def watermarks_of(
    info: ApplicationInfo, marks: ApplicationWatermarks, sources: Sequence[HostsInfo], *, now_ms: int
) -> CubeWatermarks:
    """Return levels by their output, the lowest first, and hosts that hold a watermark before others."""
    levels = [
        Level(level=name, input_ms=each.input_ms, output_ms=each.output_ms, published_ms=each.published_at_ms)
        for name, each in marks.levels.items()
    ]
    hosts = [copied(Host, each, source=source.level) for source in sources for each in source.behind]
    return CubeWatermarks(
        now_ms=now_ms,
        application=info.name,
        global_ms=marks.global_ms,
        approved_until_ms=marks.approved_until_ms,
        levels=tuple(sorted(levels, key=lambda each: (each.output_ms is not None, each.output_ms or 0))),
        sources=tuple(copied(Source, each, problem=each.list_problem or "") for each in sources),
        hosts=tuple(sorted(hosts, key=lambda each: (not each.holds, -(each.behind_ms or 0), each.host))),
        problems=info.problems,
    )
