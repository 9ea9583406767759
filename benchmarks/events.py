"""Synthetic events: 10 columns, about 200 bytes of JSON each, rolling up about 5 : 1 in batches of 50 000."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_COUNTRIES = ("de", "fr", "us", "gb", "jp", "br", "in", "cn", "it", "es")
_DEVICES = ("phone", "tablet", "desktop", "tv")
_PAGES = tuple(f"/section-{n:02d}/index.html" for n in range(25))
_CAMPAIGNS = tuple(f"campaign-{n}" for n in range(5))


def schema(topic: str) -> Schema:
    """Return a schema with four dimensions and the hour, and with count, sums, minimum and maximum."""
    table = Table(
        name="events",
        topic=topic,
        columns=(
            Column("ts", "bigint"),
            Column("country", "string"),
            Column("device", "string"),
            Column("page", "string"),
            Column("campaign", "string"),
            Column("user_id", "bigint"),
            Column("duration_ms", "int"),
            Column("bytes_sent", "bigint"),
            Column("price", "decimal(10,2)"),
            Column("is_new", "boolean"),
        ),
        time=TimeColumn("ts", "epoch_ms"),
        future_max_ms=10 * 365 * 86_400_000,
    )
    cube = Cube(
        name="events_cube",
        table="events",
        dimensions=("country", "device", "page", "campaign"),
        time_dimensions=("hour",),
        measures=(
            Measure("count"),
            Measure("sum", "duration_ms"),
            Measure("max", "duration_ms"),
            Measure("sum", "bytes_sent"),
            Measure("sum", "price"),
        ),
        segment=SegmentPolicy(window_ms=3_600_000),
    )
    return Schema(table, cube)


def values(
    count: int, seed: int, *, start_ms: int = START_MS, span_ms: int = 600_000, pages: int = len(_PAGES)
) -> list[bytes]:
    """Return `count` JSON records in event-time order, of 10 × 4 × 25 × 5 combinations, some far more
    frequent.

    `pages`: others than 25, so that less or more is left of them by the roll-up.
    """
    rng = np.random.default_rng(seed)
    ts = start_ms + np.sort(rng.integers(0, span_ms, count))
    country = rng.integers(0, len(_COUNTRIES), count)
    device = rng.integers(0, len(_DEVICES), count)
    names = _PAGES if pages == len(_PAGES) else tuple(f"/section-{n:04d}/i.html" for n in range(pages))
    page = np.minimum(rng.geometric(2 / pages, count) - 1, pages - 1)
    campaign = rng.integers(0, len(_CAMPAIGNS), count)
    user = rng.integers(10**9, 10**10, count)
    duration = rng.integers(1, 60_000, count)
    size = rng.integers(10**4, 10**7, count)
    cents = rng.integers(100, 99_999, count)
    new = rng.integers(0, 2, count)
    return [
        (
            f'{{"ts":{t},"country":"{_COUNTRIES[c]}","device":"{_DEVICES[d]}","page":"{names[p]}",'
            f'"campaign":"{_CAMPAIGNS[m]}","user_id":{u},"duration_ms":{n},"bytes_sent":{b},'
            f'"price":{x // 100}.{x % 100:02d},"is_new":{"true" if f else "false"}}}'
        ).encode()
        for t, c, d, p, m, u, n, b, x, f in zip(
            *(
                column.tolist()
                for column in (ts, country, device, page, campaign, user, duration, size, cents, new)
            ),
            strict=True,
        )
    ]


def broken(values: Sequence[bytes], share: float, seed: int) -> list[bytes]:
    """Return the same records, that share of them broken in one of four ways."""
    rng = np.random.default_rng(seed)
    records = list(values)
    ways: tuple[Callable[[bytes], bytes], ...] = (
        lambda value: value[: len(value) // 2],
        lambda value: b"not json",
        lambda value: value.replace(b'"duration_ms":', b'"duration_ms":"long","x":'),
        lambda value: value.replace(b'"ts":', b'"time":'),
    )
    chosen = rng.choice(len(records), round(share * len(records)), replace=False)
    for number, place in enumerate(chosen.tolist()):
        records[place] = ways[number % len(ways)](records[place])
    return records
