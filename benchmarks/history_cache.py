"""Statements about the last days over a slow object store, with and without copies of history on the disk.

    python -m benchmarks.history_cache [--latency-ms 20] [--days 3] [--events 40000] [--rounds 15] [--json]

Ten days of random flights in segments of six hours, all of them READY. The store is a local folder whose
every request (a look at a path, opening a file, each read of it) waits for `--latency-ms` first. The same
statement is asked in turns by a service without copies and by one with; `ratio` is the first's median over
the second's, of the statement that gains least. `local_ratio` is that of processor time where the store is
the local folder itself: what a cache costs that gains nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from rtolap.base.clock import SystemClock
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.history_cache.folder import CacheFolder
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.statement_service import QueryService

from benchmarks.statements import remember_answers
from tests.support.cubes.flights import flights_world
from tests.support.cubes.watched_store import watched_store
from tests.support.query.query_world import QueryWorld

_WORLD_DAYS = 10
NONE = MemoryBounds(0, 0, 0)  # what is in memory needs no file, wherever it lies
_STATEMENTS = {
    "by day": "select day_start, count(*) n from flights where ts >= '{since}' group by day_start",
    "by carrier, of one gate": "select carrier, sum(price) s from flights where gate = 1 and "
    "ts >= '{since}' group by carrier",
}


class Latency:
    """Waits so long at each request, and counts them."""

    def __init__(self, latency_ms: float) -> None:
        self._latency_s = latency_ms / 1000
        self.requests = 0

    def __call__(self, path: str) -> None:
        self.requests += 1
        time.sleep(self._latency_s)


def built_world(events: int) -> QueryWorld:
    world = flights_world(7, events, days=_WORLD_DAYS)
    for segment in world.segments("flights"):
        if segment.name not in world.built["flights"]:
            world.build(segment, random.Random(7), "flights")
    remember_answers(world)
    return world


def placed_cache(world: QueryWorld, root: Path) -> tuple[HistoryCache, dict[str, float]]:
    """Return all history copied, without a limit on the rate."""
    cache = HistoryCache(CacheFolder(root))
    with closing(Cluster(world.metadata, SystemClock())) as cluster:
        keeper = HistoryKeeper(
            *(cache, world.store, cluster.snapshots, SystemClock()), bytes_max=1 << 40, bytes_per_s=1 << 40
        )
        began_s = time.perf_counter()
        while keeper.round():
            pass
        took_s = time.perf_counter() - began_s
    files = len(list(root.rglob("*.parquet")))
    return cache, {"files": files, "bytes": keeper.copied_bytes, "copied_in_s": round(took_s, 2)}


class Times(NamedTuple):
    """Times of one statement, by the clock and of the processor."""

    clock_ms: float
    cpu_ms: float


def asked(service: QueryService, sql: str) -> Times:
    began_s, spent_s = time.perf_counter(), time.process_time()
    service.execute(sql).table()
    return Times((time.perf_counter() - began_s) * 1000, (time.process_time() - spent_s) * 1000)


def in_turns(plain: QueryService, cached: QueryService, sql: str, rounds: int) -> dict[str, float]:
    """Ask both in turns. The first statement of each reads every file once to check it; the others do not."""
    services = {"store": plain, "cached": cached}
    figures = {f"{name}_first_ms": round(asked(services[name], sql).clock_ms, 1) for name in services}
    times: dict[str, list[Times]] = {name: [] for name in services}
    for number in range(rounds):
        for name in sorted(services, reverse=number % 2 == 0):  # who is first changes
            times[name].append(asked(services[name], sql))
    for name, found in times.items():
        figures[f"{name}_ms"] = round(statistics.median(each.clock_ms for each in found), 1)
        figures[f"{name}_cpu_ms"] = round(statistics.median(each.cpu_ms for each in found), 1)
    figures["ratio"] = round(figures["store_ms"] / figures["cached_ms"], 2)
    figures["cpu_ratio"] = round(figures["store_cpu_ms"] / figures["cached_cpu_ms"], 2)
    return figures


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    with closing(built_world(options.events)) as world:
        local = world.store
        slow = Latency(options.latency_ms)
        world.store = watched_store(Path(local.root), slow)
        cache, placing = placed_cache(world, folder / "slow")
        since = f"2013-01-{1 + _WORLD_DAYS - options.days:02}"
        figures: dict[str, Any] = {"latency_ms": options.latency_ms, "days": options.days, "placing": placing}

        def compare(cache: HistoryCache, counted: Callable[[], int] | None) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for name, sql in _STATEMENTS.items():
                plain, cached = world.service(bounds=NONE), world.service(cache=cache, bounds=NONE)
                with closing(plain), closing(cached):
                    text = sql.format(since=since)
                    found[name] = in_turns(plain, cached, text, options.rounds)
                    if counted is not None:
                        before = counted()
                        plain.execute(text).close()
                        found[name]["store_requests"] = counted() - before
                        before = counted()
                        cached.execute(text).close()
                        found[name]["cached_requests"] = counted() - before
            return found

        figures["slow"] = compare(cache, lambda: slow.requests)
        world.store = local
        cache, _ = placed_cache(world, folder / "local")
        figures["local"] = compare(cache, None)
    figures["ratio"] = min(found["ratio"] for found in figures["slow"].values())
    figures["local_ratio"] = min(found["cpu_ratio"] for found in figures["local"].values())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rtolap-history-cache-"))
    try:
        figures = measure(options, folder)
    finally:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(figures))
        return
    placing = figures["placing"]
    print(f"{placing['files']} files, {placing['bytes']} bytes copied in {placing['copied_in_s']} s")
    for where in ("slow", "local"):
        for name, found in figures[where].items():
            print(f"{where} store, {name}: " + ", ".join(f"{what} {value}" for what, value in found.items()))
    print(f"ratio {figures['ratio']}, on a local store {figures['local_ratio']}")


if __name__ == "__main__":
    main()
