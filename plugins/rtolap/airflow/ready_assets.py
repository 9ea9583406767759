"""READY segments as Airflow assets: one asset a cube, an event for each version that a build has promoted.

    remember ──▶ promote ──▶ … more batches … ──▶ announce, as the task succeeds

What is about to be promoted is noted in the task's state store, which survives retries and clears: a worker
that is lost after a promotion leaves the note, and the execution that succeeds announces it. Each version is
announced once (`outlets.recorded`). A version that a later one has replaced meanwhile is announced as the
later one, a purged one not at all. Airflow sends events of tasks that succeed: those of one that failed come
once it is cleared and succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from airflow.sdk import NEVER_EXPIRE, Asset, AssetAlias, Context  # type: ignore[attr-defined,unused-ignore]

from rtolap.airflow.outlets.recorded import announce_once
from rtolap.airflow.words import iso
from rtolap.base.decoding import convert
from rtolap.base.errors import NotFound
from rtolap.protocols.coordinator.client import CoordinatorClient

READY_SEGMENTS = AssetAlias(name="rtolap_ready_segments")

_BATCHES_KEY = "promoted_batches"  # a value of the store holds 64 KB: each batch has one of its own


def ready_asset(cube: str) -> Asset:
    """Return the asset of a cube's READY segments, for schedules of other DAGs."""
    return Asset(name=f"rtolap_ready_{cube}", uri=f"x-rtolap://cubes/{quote(cube, safe='')}/ready")


def remember(context: Context, versions: Iterable[tuple[str, int]]) -> None:
    """Note (segment, version) that are about to be promoted."""
    store = context["task_state_store"]
    batches = _batches(context)
    store.set(f"{_BATCHES_KEY}.{batches}", dict(versions), retention=NEVER_EXPIRE)
    store.set(_BATCHES_KEY, batches + 1, retention=NEVER_EXPIRE)


def announce(context: Context, cube: str, versions: Iterable[dict[str, Any]]) -> int:
    """Add an event of the cube's asset for each version that is not announced yet; return their number."""
    events = [(ready_asset(cube), extra) for extra in versions]
    return len(announce_once(context, READY_SEGMENTS, events, identity=("segment", "version")))


def noted_versions(context: Context, cube: str, coordinator: CoordinatorClient) -> list[dict[str, Any]]:
    """Return what there is to tell of the noted versions that were promoted."""
    store = context["task_state_store"]
    noted: dict[str, int] = {}
    for batch in range(_batches(context)):
        noted.update(convert(store.get(f"{_BATCHES_KEY}.{batch}"), dict[str, int]))
    told: list[dict[str, Any]] = []
    for segment, version in sorted(noted.items()):
        try:
            found = coordinator.segment(cube, segment)
        except NotFound:
            continue
        if found.version < version or found.state == "PURGED":
            continue
        told.append(
            {
                "cube": cube,
                "segment": segment,
                "version": found.version,
                "events": found.events,
                "start": iso(found.start_ms),
                "end": iso(found.end_ms),
            }
        )
    return told


def _batches(context: Context) -> int:
    count = context["task_state_store"].get(_BATCHES_KEY)
    return count if isinstance(count, int) else 0
