"""EXPLAIN: what a statement did, as rows (item, value)."""

from __future__ import annotations

import json

import msgspec
import pyarrow as pa

from rtolap.query.plan import ReadStats, Rewritten


def explain_table(rewritten: Rewritten, stats: list[ReadStats]) -> pa.Table:
    rows: list[tuple[str, str]] = []
    by_cube = {read.cube: read for read in rewritten.reads}
    for done in stats:
        read = by_cube[done.cube]
        pushed = "none" if read.filter is None else msgspec.json.encode(read.filter).decode()
        cuboids = ", ".join(f"{name} ({count} segments)" for name, count in sorted(done.cuboids.items()))
        rows += [
            ("cube", done.cube),
            ("dimensions", ", ".join(read.dimensions) or "none"),
            ("partials", ", ".join(read.partials)),
            ("pushed filter", pushed),
            ("cuboid", cuboids or "none"),
            ("history segments", ", ".join(done.history_segments) or "none"),
            ("pruned segments", ", ".join(done.pruned_segments) or "none"),
            ("real-time segments", ", ".join(done.realtime_segments) or "none"),
            ("receivers", ", ".join(f"{rs}: {r}" for rs, r in sorted(done.receivers.items())) or "none"),
            ("rows read", str(done.rows_read)),
            ("rows pruned", str(done.rows_pruned)),
            ("partial rows", str(done.partial_rows)),
            ("positions", json.dumps({str(p): o for p, o in sorted(done.positions.items())})),
        ]
    if rewritten.lookups:
        rows.append(("lookups", ", ".join(rewritten.lookups)))
    rows.append(("sql", rewritten.sql.replace("__relation_", "")))
    return pa.table({"item": [item for item, _ in rows], "value": [value for _, value in rows]})
