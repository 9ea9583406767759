"""The bounds of what HBase's logs can hold: edits beyond them were not written by HBase.

A region's read point is the largest sequence id whose edits readers see, and it only grows. HBase ships an
edit a moment before or any time after readers see it. So an id above the read point of its region was never
given, and nothing that a client sends may take it away from the edit that gets it one day.

    the region is open      its rows lie within its borders, its ids are at most its read point
    another has its rows    it was split, merged or moved away: the regions that have its rows now have opened
                            with larger ids
    the table is disabled, or gone   there is nobody to ask, and nothing is bounded

Edits beyond their bounds are refused, and HBase sends its own again. Some of HBase's own stay beyond them: a
table that is truncated, or restored from a snapshot, takes ids back while edits of before are on their way.
So edits of a region that was refused for `doubt_s` are set apart.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache
from numpy.typing import NDArray

from rtolap.base.clock import Clock
from rtolap.base.errors import NotInLog, RtolapError, Unavailable
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.hbase.regions import Region, RegionClient

Mask = NDArray[np.bool_]

DOUBT_S: Final = 30.0
_READ_POINT_WAIT_S: Final = 2.0  # readers see an edit a moment after it may be shipped
_REGION_WAIT_S: Final = 5.0  # a region that moves is open again by then
_PAUSE_S, _PAUSE_MAX_S = 0.002, 0.25
_SHARED_S: Final = 0.05  # forged calls that wait ask no region more often than this
_TURN_REGIONS: Final = 64  # are asked for one call before another call has its turn
_REMEMBERED: Final = 100_000  # regions


@dataclass(frozen=True, slots=True)
class RegionClaim:
    """The events of one region in a call: their places, their largest id, their first and last row."""

    table: str
    region: str
    highest: int
    first: bytes
    last: bytes
    places: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A claim beyond its bounds, and in words why."""

    claim: RegionClaim
    expected: str


class LogBounds:
    """Bounds of the sequence ids in HBase's logs, for one event loop. A separate thread asks HBase. Close it.

    Attributes:
        unchecked: regions in calls about which there was nobody to ask.
        clock_ahead_max_s: the most that an edit's write time may be ahead of `clock`.
        doubt_s: a region's edits are refused for so long, and set apart afterwards.
    """

    def __init__(
        self,
        client: RegionClient,
        clock: Clock,
        *,
        clock_ahead_max_s: float = 3600.0,
        doubt_s: float = DOUBT_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.unchecked = 0
        self._client = client
        self._clock = clock
        self._clock_ahead_max_ms = int(clock_ahead_max_s * 1000)
        self._doubt_s = doubt_s
        self._monotonic_s = monotonic_s
        self._executor = ThreadPoolExecutor(1, "sep-log-bounds")
        self._read_points: OrderedDict[str, int] = OrderedDict()
        self._requested_s: dict[str, float] = {}  # the same regions → when their read points were requested
        self._forgot_s: dict[str, float] = {}  # tables → when their regions were looked up again
        self._by_name: dict[str, tuple[list[Region], dict[str, Region]]] = {}
        self._fresh_s = 0.0
        self._doubted_s: LRUCache[str, float] = LRUCache(_REMEMBERED)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    async def check(self, batch: EditBatch, deadline_s: float) -> Mask | None:
        """Return which events are to be set apart; None where none is. `deadline_s`: by time.monotonic().

        Raises NotInLog where HBase cannot have written an event; Unavailable where that is not known now.
        """
        self._check_times(batch)
        apart = np.zeros(batch.num_events, bool)
        claims = list(claims_of(batch))
        for start in range(0, len(claims), _TURN_REGIONS):
            for doubt in await self._doubts(claims[start : start + _TURN_REGIONS], deadline_s):
                if not self._is_doubted_for_long(doubt.claim.region):
                    raise NotInLog(
                        f"HBase cannot have written edit {doubt.claim.highest} of region "
                        f"{doubt.claim.region} of {doubt.claim.table}",
                        expected=doubt.expected,
                        found=f"{len(doubt.claim.places)} events, up to id {doubt.claim.highest}",
                        action="look at who may connect; if the table was truncated or restored, they are "
                        f"set apart after {self._doubt_s:g} s",
                    )
                apart[doubt.claim.places] = True
        return apart if apart.any() else None

    def _check_times(self, batch: EditBatch) -> None:
        latest_ms = pc.max(batch.events["write_time_ms"]).as_py()
        now_ms = self._clock.now_ms()
        if latest_ms is not None and latest_ms > now_ms + self._clock_ahead_max_ms:
            raise NotInLog(
                "an edit was written in the future",
                expected=f"at most {self._clock_ahead_max_ms / 1000:g} s ahead of this machine's clock",
                found=f"{(latest_ms - now_ms) / 1000:g} s ahead",
                action="set the clocks right, or raise RTOLAP_SEP_CLOCK_AHEAD_MAX_S",
            )

    def _is_doubted_for_long(self, region: str) -> bool:
        now_s = self._monotonic_s()
        since_s = self._doubted_s.setdefault(region, now_s)
        return now_s - since_s >= self._doubt_s

    async def _doubts(self, claims: Sequence[RegionClaim], deadline_s: float) -> list[Doubt]:
        """Ask until all is well, or as long as a read point or a region may be late."""
        loop = asyncio.get_running_loop()
        began_s, pause_s, is_first = time.monotonic(), _PAUSE_S, True
        while True:
            away: RtolapError | None = None
            doubts: list[Doubt] = []
            try:
                doubts = await loop.run_in_executor(self._executor, self._look, claims, is_first)
            except Unavailable as error:
                away = error
            if away is None and not doubts:
                for claim in claims:
                    self._doubted_s.pop(claim.region, None)
                return []
            now_s = time.monotonic()
            wait_s = _READ_POINT_WAIT_S if away is None else _REGION_WAIT_S
            if now_s - began_s > wait_s or now_s + pause_s > deadline_s:
                if away is not None:
                    raise away
                return doubts
            await asyncio.sleep(pause_s)
            pause_s, is_first = min(2 * pause_s, _PAUSE_MAX_S), False

    # -- on the thread -----------------------------------------------------------------------------------

    def _look(self, claims: Sequence[RegionClaim], is_first: bool) -> list[Doubt]:
        """Return the claims that are beyond their bounds as they are now. Unavailable: a region is away.

        `is_first`: ask for every read point. Later one request to a region serves all claims that wait.
        """
        doubts = []
        self._fresh_s = 0.0 if is_first else _SHARED_S
        for claim in claims:
            try:
                doubt = self._doubt(claim)
            except Unavailable:
                self._forget(claim.table)
                if self._client.is_enabled(claim.table):
                    raise
                self.unchecked += 1
                continue
            if doubt is not None:
                doubts.append(doubt)
        return doubts

    def _doubt(self, claim: RegionClaim) -> Doubt | None:
        own = self._own(claim)
        if own is None:
            if claim.highest <= self._read_points.get(claim.region, -1):
                return None  # it was open with that id, and is split, merged or gone since
            self._forget(claim.table)  # it may be younger than what is known
            own = self._own(claim)
        if own is not None:
            if claim.first < own.start or (own.end and claim.last >= own.end):
                return Doubt(claim, f"rows from {own.start!r} to before {own.end!r}, which the region has")
            return self._behind(claim, own)
        regions = self._client.regions(claim.table)
        if not regions:
            self._client.forget(claim.table)
            self.unchecked += 1
            return None
        doubts = (self._behind(claim, region) for region in _with_rows(regions, claim))
        return next((doubt for doubt in doubts if doubt is not None), None)

    def _forget(self, table: str) -> None:
        now_s = time.monotonic()
        if now_s - self._forgot_s.get(table, -math.inf) >= _SHARED_S:
            if len(self._forgot_s) > _REMEMBERED:
                self._forgot_s.clear()
            self._forgot_s[table] = now_s
            self._client.forget(table)

    def _own(self, claim: RegionClaim) -> Region | None:
        regions = self._client.regions(claim.table)
        known = self._by_name.get(claim.table)
        if known is None or known[0] is not regions:
            known = regions, {region.encoded: region for region in regions}
            if regions:  # tables that are not there have endless names
                self._by_name[claim.table] = known
        return known[1].get(claim.region)

    def _behind(self, claim: RegionClaim, region: Region) -> Doubt | None:
        name = region.encoded
        if claim.highest > self._read_points.get(name, -1):
            if time.monotonic() - self._requested_s.get(name, -math.inf) >= self._fresh_s:
                point = self._client.read_point(region, max(claim.first, region.start))
                self._requested_s[name] = time.monotonic()
                self._read_points[name] = max(point, self._read_points.get(name, -1))
                while len(self._read_points) > _REMEMBERED:
                    forgotten, _ = self._read_points.popitem(last=False)
                    del self._requested_s[forgotten]
            if claim.highest > self._read_points[name]:
                return Doubt(
                    claim, f"ids of at most {self._read_points[name]}, which region {name} has given"
                )
        return None


def claims_of(batch: EditBatch) -> Iterator[RegionClaim]:
    """Return a claim for each region of each table in the batch."""
    tables, regions = batch.events["table"], batch.events["region"]
    if not batch.num_events:
        return
    codes = tables.indices.to_numpy().astype(np.int64) * len(regions.dictionary) + regions.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    borders = np.flatnonzero(np.diff(codes[order])) + 1
    ids = batch.events["sequence_id"].to_numpy()
    for places in np.split(order, borders):
        rows = pc.min_max(batch.events["row"].take(pa.array(places)))
        yield RegionClaim(
            str(tables[int(places[0])].as_py()),
            str(regions[int(places[0])].as_py()),
            int(ids[places].max()),
            rows["min"].as_py(),
            rows["max"].as_py(),
            places,
        )


def _with_rows(regions: Sequence[Region], claim: RegionClaim) -> Sequence[Region]:
    """Return the regions, sorted by their starts, that have rows from the claim's first to its last."""
    starts = [region.start for region in regions]
    low = max(0, bisect_right(starts, claim.first) - 1)
    return regions[low : max(low + 1, bisect_left(starts, claim.last + b"\0"))]
