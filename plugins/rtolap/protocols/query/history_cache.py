"""Messages of a query service about its copies of history."""

from __future__ import annotations

import msgspec


class VersionCopies(msgspec.Struct, frozen=True):
    """A READY version, and how much of it is on the disk.

    `state`: REMOTE, COPYING, PARTLY or CACHED. `files` and `bytes`: of all of it; None where the service has
    not looked, because it is older than what fits.
    """

    cube: str
    segment: str
    version: int
    state: str
    cached_files: int
    cached_bytes: int
    files: int | None
    bytes: int | None


class HistoryCacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: OFF without a cache, else a condition of docs/operations.md; `found`: what stops it.

    `complete_from_ms`: of every READY version that ends later, all is on the disk; None: of every version.
    `versions`: newest first, as many as were asked for.
    """

    state: str
    found: str = ""
    folder: str = ""
    bytes_max: int = 0
    cached_bytes: int = 0
    copying_bytes: int = 0
    leaving_bytes: int = 0
    cached_files: int = 0
    copied_bytes: int = 0
    complete_from_ms: int | None = None
    evicted: dict[str, int] = {}
    failures: dict[str, int] = {}
    versions: tuple[VersionCopies, ...] = ()


OFF = HistoryCacheReport(state="OFF")
