"""Segments that were closed by force before their window may close, and what is done about their builds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from rtolap.airflow.windows import Window, explain
from rtolap.base.errors import DefinitionError
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import QueueEntry
from rtolap.protocols.watermark.messages import Explanation

IncompleteBuilds = Literal["build", "approve"]
POLICY_VARIABLE = "rtolap_incomplete_builds"
FIRST_VERSION = 1


def incomplete_builds(value: str) -> IncompleteBuilds:
    """`build`: whatever was closed is built. `approve`: what was closed by force waits until its window may
    close, by its watermark or by a person. Raises DefinitionError."""
    for known in get_args(IncompleteBuilds):
        if value == known:
            policy: IncompleteBuilds = known
            return policy
    expected = " or ".join(get_args(IncompleteBuilds))
    raise DefinitionError("no such policy for incomplete builds", expected=expected, found=repr(value))


def forced(entries: Iterable[QueueEntry]) -> dict[QueueEntry, Window]:
    """Those closed by force whose first version is still to be built. Later versions only add events."""
    return {
        entry: Window(known.application, known.window_end_ms)
        for entry in entries
        if entry.version == FIRST_VERSION
        and (known := entry.completeness) is not None
        and known.closed_by == "forced"
    }


def held(coordinator: CoordinatorClient, entries: Iterable[QueueEntry]) -> dict[QueueEntry, Explanation]:
    """Return those of the forced entries whose window may not close even now."""
    explanations: dict[Window, Explanation] = {}
    held_entries: dict[QueueEntry, Explanation] = {}
    for entry, window in forced(entries).items():
        if window not in explanations:
            explanations[window] = explain(coordinator, window)
        if not explanations[window].may_close:
            held_entries[entry] = explanations[window]
    return held_entries
