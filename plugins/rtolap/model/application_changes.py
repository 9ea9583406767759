"""The changes of an application that can be made while it runs.

Everything that keeps the meaning of what was published: rules and their bounds, leases, host lists, edges,
levels that come and go. Watermarks stay where they are until the new definition has gone beyond them.
"""

from __future__ import annotations

from rtolap.base.errors import Refused
from rtolap.model.application import Application, Source


def refuse_unsafe_change(before: Application, after: Application) -> None:
    """Raises Refused for the first change that would give a published watermark another meaning."""
    for level in after.levels:
        former = next((one for one in before.levels if one.name == level.name), None)
        if former is None:
            continue
        if type(former) is not type(level):
            raise Refused(
                f"application {before.name}: level {level.name} cannot change its kind",
                expected=_kind(former),
                found=_kind(level),
                action="give the new level another name",
            )
        if isinstance(former, Source) and isinstance(level, Source):
            _refuse_other_progress(before.name, former, level)


def _refuse_other_progress(application: str, before: Source, after: Source) -> None:
    """Raise Refused for a change between hosts and none: reporters of a source without hosts name none, those
    of one with hosts name all.
    """
    if before.rule.needs_hosts != after.rule.needs_hosts:
        raise Refused(
            f"application {application}: source {after.name} cannot change between partitions and hosts",
            expected=f"a rule {'with' if before.rule.needs_hosts else 'without'} hosts, such as "
            f"{before.rule.kind}",
            found=after.rule.kind,
            action="declare a source of another name beside it, move its consumers, then remove this one",
        )


def _kind(level: object) -> str:
    return type(level).__name__.lower()
