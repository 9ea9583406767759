"""EXPLAIN, what a statement would do, and EXPLAIN ANALYZE, what it did: rows (item, value)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from rtolap.protocols.query.messages import QueryWarning, refused_text
from rtolap.query.catalogue import relation_key
from rtolap.query.plan import CubeRead, ReadStats, Rewritten, TableRead, TableStats, ValueSet
from rtolap.query.sql.rules.pushdown import relation_name

SCHEMA = pa.schema([("item", pa.string()), ("value", pa.string())])
ENGINE, MERGE = "the engine", "a merge of partials"
_Rows = list[tuple[str, str]]


def planned(
    rewritten: Rewritten, estimates: Sequence[ReadStats], warnings: Sequence[QueryWarning]
) -> pa.Table:
    rows: _Rows = []
    for read, would in zip(rewritten.reads, estimates, strict=True):
        rows += _of_read(read, would)
        rows += [
            *(("value set", _asked(each)) for each in rewritten.sets if each.cube == read.cube),
            ("rows read (estimate)", str(would.rows_read)),
            ("rows pruned (estimate)", str(would.rows_pruned)),
            ("real-time events (at most)", str(would.realtime_events)),
        ]
    for table in rewritten.tables:
        rows += _of_table(table)
        parts = [(each.name, each) for each in table.table.partitions]
        read_parts = [name for name, part in parts if table.time.overlaps(part.start_ms, part.end_ms)]
        pruned = [name for name, _ in parts if name not in read_parts]
        rows += [
            ("partitions", ", ".join(read_parts) or "none"),
            ("pruned partitions", ", ".join(pruned) or "none"),
        ]
    if rewritten.latest is not None:
        key, enough = rewritten.latest.key, rewritten.latest.rows
        rows.append(("latest first", f"by {key}, until there are {enough} rows"))
    rows.append(("answered by", ENGINE if rewritten.merge is None else MERGE))
    return _table(rows + _of_statement(rewritten, warnings))


def analyzed(
    rewritten: Rewritten,
    stats: Sequence[ReadStats],
    tables: Sequence[TableStats],
    result_rows: int,
    elapsed_ms: float,
    warnings: Sequence[QueryWarning],
    *,
    by_engine: bool,
) -> pa.Table:
    rows: _Rows = []
    for read, done in zip(rewritten.reads, stats, strict=True):
        rows += _of_read(read, done)
        tables_of = sorted(done.realtime_cuboids.items())
        rows += [
            *(("value set", words) for words in done.value_sets),
            *([("groups", "the first alone, chosen by the receiver")] if done.top_groups else []),
            *([("groups", _spread(done))] if done.top_rounds else []),
            ("real-time cuboids", ", ".join(f"{name} ({n} tables)" for name, n in tables_of) or "none"),
            ("rows read", str(done.rows_read)),
            ("rows pruned", str(done.rows_pruned)),
            ("partial rows", str(done.partial_rows)),
            ("partial bytes", str(done.partial_bytes)),
            ("history spilled", f"{done.spilled_bytes} bytes"),
            ("snapshots", str(done.snapshots)),
            ("read for", _read_for(done)),
            ("fetch ms", f"{done.fetch_ms:.1f}"),
            *_positions(done),
        ]
    for table, table_stats in zip(rewritten.tables, tables, strict=True):
        rows += _of_table(table)
        rows += [
            ("partitions", ", ".join(table_stats.partitions) or "none"),
            ("pruned partitions", ", ".join(table_stats.pruned_partitions) or "none"),
            ("tablets", str(table_stats.tablets)),
            (
                "nodes",
                ", ".join(f"{node}: {count}" for node, count in sorted(table_stats.nodes.items())) or "none",
            ),
            ("rows read", str(table_stats.rows_read)),
            ("read views", str(table_stats.views)),
            ("fetch ms", f"{table_stats.fetch_ms:.1f}"),
        ]
    rows.append(("answered by", ENGINE if by_engine else MERGE))
    rows += _of_statement(rewritten, warnings)
    rows += [
        ("result rows", str(result_rows)),
        ("elapsed ms", f"{elapsed_ms:.1f}"),
    ]
    return _table(rows)


def _of_read(read: CubeRead, stats: ReadStats) -> _Rows:
    pushed = "none" if read.filter is None else msgspec.json.encode(read.filter).decode()
    cuboids = ", ".join(f"{name} ({count} segments)" for name, count in sorted(stats.cuboids.items()))
    return [
        ("cube", read.cube),
        ("dimensions", ", ".join(read.dimensions) or "none"),
        ("partials", ", ".join(read.partials)),
        ("pushed filter", pushed),
        ("cuboid", cuboids or "none"),
        ("history segments", ", ".join(stats.history_segments) or "none"),
        ("pruned segments", ", ".join(stats.pruned_segments) or "none"),
        ("history read by", _engine(stats)),
        ("history files", f"{stats.files_cached} cached, {stats.files_remote} from the object store"),
        ("real-time segments", ", ".join(stats.realtime_segments) or "none"),
        ("receivers", ", ".join(f"{rs}: {r}" for rs, r in sorted(stats.receivers.items())) or "none"),
        ("refused records", refused_text(stats.refused, stats.refused_example) or "none"),
    ]


def _engine(stats: ReadStats) -> str:
    match stats.engine:
        case "":
            return "none"
        case "cached":
            return "nobody: the result is kept"
    return f"{stats.engine}: {stats.engine_reason}"


def _asked(asked: ValueSet) -> str:
    words = f"{asked.column} {'NOT IN' if asked.negated else 'IN'} ({asked.sql})"
    return words.replace(relation_name(""), "")


def _spread(stats: ReadStats) -> str:
    sources = len(stats.receivers) + bool(stats.history_segments)
    return f"the first alone, found in {stats.top_rounds} rounds over {sources} sources"


def _positions(stats: ReadStats) -> _Rows:
    texts = {
        cube: json.dumps({str(p): at for p, at in own.items()}) for cube, own in stats.all_positions().items()
    }
    if not stats.revisions:
        return [("positions", text) for text in texts.values()]
    return [("positions", f"{cube}: {text}") for cube, text in texts.items()]


def _read_for(stats: ReadStats) -> str:
    if stats.statements == 1:
        return "this statement"
    by = "this one" if stats.is_own else "another one"
    return f"{stats.statements} equal statements at once, by {by}"


def _of_table(read: TableRead) -> _Rows:
    pushed = "none" if read.filter is None else msgspec.json.encode(read.filter).decode()
    return [
        ("stored table", _stored_name(read)),
        ("columns", ", ".join(read.columns)),
        ("pushed filter", pushed),
        ("nodes send", _sent(read)),
    ]


def _sent(read: TableRead) -> str:
    work = read.work
    if work.partials is not None:
        calls = [f"{each.function}({each.column or '*'})" for each in work.partials.columns]
        by = ", ".join(work.partials.groups)
        return f"partial aggregates {', '.join(calls) or 'none'} by {by or 'nothing'}"
    if work.top is not None:
        keys = [
            f"{key.column}{' desc' * key.descending}, NULL {'first' if key.nulls_first else 'last'}"
            for key in work.top.keys
        ]
        return f"the first {work.top.rows} rows by {'; '.join(keys) or 'no order'}"
    return f"rows: {work.rows_because}"


def _stored_name(read: TableRead) -> str:
    table = read.table
    if read.relation.partition("#")[0] == relation_name(relation_key(table.db, table.name)):
        return table.qualified_name
    return f"{table.qualified_name}, as {read.relation.removeprefix(relation_name(''))}"


def _of_statement(rewritten: Rewritten, warnings: Sequence[QueryWarning]) -> _Rows:
    lookups = [("lookups", ", ".join(rewritten.lookups))] if rewritten.lookups else []
    rows = [("warning", warning.message) for warning in warnings]
    return [*lookups, *rows, ("sql", rewritten.sql.replace("__relation_", ""))]


def _table(rows: _Rows) -> pa.Table:
    return pa.table(
        [pa.array([item for item, _ in rows]), pa.array([value for _, value in rows])], schema=SCHEMA
    )
