"""Explanations of why a window waits: hosts, units and partitions, in numbers and in words."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from rtolap.coordinator.applications.running import RunningApplication
from rtolap.coordinator.applications.sources import SourceState
from rtolap.model.durations import format_duration
from rtolap.protocols.watermark import messages as wire
from rtolap.watermark.missing import Behind, behind, missing
from rtolap.watermark.snapshot import NEVER
from rtolap.watermark.zones import zone_hint

_NAMED_MAX = 3  # hosts in a sentence
_LISTED_MAX = 20


def watermarks(running: RunningApplication, now_ms: int) -> wire.ApplicationWatermarks:
    published = running.published
    levels = {
        name: wire.LevelWatermark(
            input_ms=level.input_ms, output_ms=level.output_ms, published_at_ms=published.at_ms
        )
        for name, level in published.marks.levels.items()
    }
    return wire.ApplicationWatermarks(
        application=running.application.name,
        epoch=running.epoch,
        now_ms=now_ms,
        levels=levels,
        global_ms=published.marks.global_ms,
        approved_until_ms=running.approved_until_ms(),
    )


def hosts(
    running: RunningApplication, level: str, now_ms: int, limit: int, before_ms: int | None = None
) -> wire.HostsInfo:
    """Return the hosts that have not reached `before_ms` (now, if None), the furthest behind first."""
    source = running.source(level)
    marks = running.published.marks.levels.get(level)
    watermark_ms = None if marks is None else marks.input_ms
    with running.lock:
        snapshot = source.snapshot(now_ms)
        mark_ms = now_ms if before_ms is None else before_ms
        behind_hosts = behind(snapshot, mark_ms, source.window_ms, limit) if source.named else ()
        counting = snapshot.counting
        holding = NEVER if watermark_ms is None else watermark_ms
        return wire.HostsInfo(
            application=running.application.name,
            level=level,
            watermark_ms=watermark_ms,
            list_epoch=source.hosts.epoch,
            counting=int(np.count_nonzero(counting)) if source.named else 0,
            unseen=int(np.count_nonzero(counting & (snapshot.latest_ms == NEVER))) if source.named else 0,
            holding=int(np.count_nonzero(counting & (snapshot.latest_ms <= holding))) if source.named else 0,
            behind=tuple(_behind(host, watermark_ms) for host in behind_hosts),
            awaited_partitions=tuple(sorted(source.awaited)),
            list_problem=source.list_problem,
        )


def explain(running: RunningApplication, window_end_ms: int, now_ms: int) -> wire.Explanation:
    """Explain a window. A source's numbers are those of a window of its rule that ends there."""
    marks, approved_ms = running.published.marks, running.approved_until_ms()
    complete = marks.global_ms is not None and marks.global_ms >= window_end_ms
    approved = approved_ms is not None and approved_ms >= window_end_ms
    reasons: list[str] = []
    hosts_by_source: dict[str, wire.HostsInfo] = {}
    expected: dict[str, int] = {}
    bound: dict[str, int] = {}
    breached: dict[str, int] = {}
    for name, source in running.sources.items():
        if source.named:
            with running.lock:
                share = missing(source.snapshot(now_ms), window_end_ms, source.window_ms)
                breach = None if source.breaches is None else source.breaches.of_window(window_end_ms)
            expected[name], bound[name] = share.expected_ppm, share.bound_ppm
            if breach is not None:
                breached[name] = breach.missing_ppm
        level = marks.levels.get(name)
        if level is None or level.input_ms is None or level.input_ms < window_end_ms:
            hosts_by_source[name] = hosts(running, name, now_ms, _LISTED_MAX, window_end_ms)
            reasons += _source_reasons(source, hosts_by_source[name], window_end_ms, now_ms)
    reasons += _unit_reasons(running, window_end_ms)
    if not complete and not reasons:
        reasons.append("the watermark is published within a second or two")
    if approved and not complete:
        by = max(running.approvals, key=lambda one: one.until_ms)
        reasons.insert(0, f"approved by {by.by} up to {_instant(by.until_ms)}: {by.reason}")
    return wire.Explanation(
        application=running.application.name,
        window_end_ms=window_end_ms,
        may_close=complete or approved,
        approved=approved and not complete,
        global_ms=marks.global_ms,
        reasons=() if complete else tuple(reasons),
        hosts={} if complete else hosts_by_source,
        expected_missing_ppm=expected,
        bound_ppm=bound,
        breached_ppm=breached,
    )


def _source_reasons(source: SourceState, info: wire.HostsInfo, window_end_ms: int, now_ms: int) -> list[str]:
    name = source.source.name
    at = "unknown" if info.watermark_ms is None else _instant(info.watermark_ms)
    reasons = []
    if info.awaited_partitions:
        listed = ", ".join(map(str, info.awaited_partitions[:10]))
        number = len(info.awaited_partitions)
        reasons.append(f"{name}: {number} partitions have not reported to this owner yet: {listed}")
    if source.named and not info.counting:
        reasons.append(f"{name}: no host is listed")
    elif source.named and info.behind:
        known = (host.behind_ms for host in info.behind if host.behind_ms is not None)
        far = max(known, default=None)
        by = "" if far is None else f" by up to {format_duration(max(far, 0) // 1000 * 1000)}"
        named = ", ".join(host.host for host in info.behind[:_NAMED_MAX])
        with_unseen = f", {info.unseen} of them never seen" if info.unseen else ""
        late = _count_late(source, window_end_ms, now_ms)
        reasons.append(
            f"{name} is at {at}: {late} of {info.counting} hosts behind{by}{with_unseen}: {named}"
            + (", …" if late > _NAMED_MAX else "")
        )
    elif not source.named:
        reasons.append(f"{name} is at {at}: {_partitions_behind(source, window_end_ms)}")
    if info.list_problem:
        reasons.append(info.list_problem)
    return reasons


def _count_late(source: SourceState, window_end_ms: int, now_ms: int) -> int:
    snapshot = source.snapshot(now_ms)
    return int(np.count_nonzero(snapshot.counting & (snapshot.latest_ms < window_end_ms)))


def _partitions_behind(source: SourceState, window_end_ms: int) -> str:
    reached = source.progress.partition_latest_ms()
    late = sorted(
        partition for partition in source.generations() if reached.get(partition, NEVER) < window_end_ms
    )
    if not source.generations():
        return "no partition has reported"
    return f"partitions {late[:10]} have seen no event at or after the window's end"


def _unit_reasons(running: RunningApplication, window_end_ms: int) -> list[str]:
    reasons = []
    with running.lock:
        work = running.units.work(running.published.marks)
        for level in running.application.in_order():
            awaited = running.units.awaited(level)
            if awaited:
                reasons.append(f"{level}: {len(awaited)} units have not reported to this owner yet")
            late = [
                (unit.oldest_work_ms, unit.processor, unit.key_group)
                for unit in work.get(level, ())
                if unit.oldest_work_ms is not None and unit.oldest_work_ms < window_end_ms
            ]
            if late and len(late) > len(awaited):
                oldest_ms, processor, key_group = min(late)
                reasons.append(
                    f"{level}: {len(late)} units have older work, "
                    f"{processor}/{key_group} from {_instant(oldest_ms)}"
                )
    return reasons


def _behind(host: Behind, watermark_ms: int | None) -> wire.HostBehind:
    return wire.HostBehind(
        host=host.host,
        latest_ms=host.latest_ms,
        behind_ms=host.behind_ms,
        share_ppm=host.share_ppm,
        holds=host.latest_ms is None or watermark_ms is None or host.latest_ms <= watermark_ms,
        hint="never seen" if host.behind_ms is None else zone_hint(-host.behind_ms),
    )


def _instant(instant_ms: int) -> str:
    try:
        return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{instant_ms} ms"
